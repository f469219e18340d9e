# SPDX-License-Identifier: Apache-2.0
# Compiler options, the CUDA toolkit, third-party libraries, and what the configure summary says.

# --- options of our own code, never PUBLIC -------------------------------------------------------
add_library(tandem_options INTERFACE)
target_compile_features(tandem_options INTERFACE cxx_std_20)
# No contraction: the host twins round where the kernels round.
target_compile_options(tandem_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-ffp-contract=off;-fvisibility=hidden>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TANDEM_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-fvisibility=hidden;-lineinfo>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TANDEM_WERROR}>>:-Werror=all-warnings>)

if(TANDEM_SANITIZE STREQUAL "address")
  set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # g++ says of its own <regex> under this sanitizer what is not so.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>")
elseif(TANDEM_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT TANDEM_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TANDEM_SANITIZE is '${TANDEM_SANITIZE}'; allowed: empty, address, thread")
endif()
if(TANDEM_SANITIZE)
  # Directory-wide, so that the test programs are instrumented with the library.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  add_link_options(${flags})
endif()

find_program(TANDEM_CCACHE ccache)
mark_as_advanced(TANDEM_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND TANDEM_CCACHE)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${TANDEM_CCACHE}")
    endif()
  endforeach()
endif()

# --- third-party libraries -----------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(fmt REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)

# --- CUDA ----------------------------------------------------------------------------------------
if(NOT TANDEM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TANDEM_CUDA is '${TANDEM_CUDA}'; allowed: AUTO, ON, OFF")
endif()
if(TANDEM_CUDA_ARCHITECTURES STREQUAL "")
  message(FATAL_ERROR "TANDEM_CUDA_ARCHITECTURES is empty; name at least one, for example 90")
endif()
include(TandemCudaRequirements)

# Each step runs only while nothing is missing, so the reason reported is the first one.
set(TANDEM_CUDA_REASON "")
if(TANDEM_CUDA STREQUAL "OFF")
  set(TANDEM_CUDA_REASON "TANDEM_CUDA=OFF")
endif()

# PATH only: CMake itself would also look into directories that the user did not name.
if(NOT TANDEM_CUDA_REASON AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc NO_CACHE NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
  if(NOT nvcc)
    set(TANDEM_CUDA_REASON "nvcc is not on PATH")
  endif()
endif()

if(NOT TANDEM_CUDA_REASON)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # look again: what was missing may be there now
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(TANDEM_CUDA_REASON "nvcc was found, but cannot compile with this C++ compiler")
  endif()
endif()

if(NOT TANDEM_CUDA_REASON)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${TANDEM_CUDA_ARCHITECTURES})
    if(NOT TANDEM_CUDA_ARCHITECTURES STREQUAL "native")
      # Machine code for each, and PTX of the last as well.
      list(POP_BACK CMAKE_CUDA_ARCHITECTURES newest)
      list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND "-real")
      list(APPEND CMAKE_CUDA_ARCHITECTURES "${newest}")
    endif()
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit)
  find_package(cuDNN MODULE)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cublasLt AND TARGET CUDA::cudart_static)
    set(toolkit "${CUDAToolkit_VERSION}")
  else()
    set(toolkit "")
  endif()
  if(NOT cuDNN_FOUND)
    set(cuDNN_VERSION "")
  endif()
  tandem_cuda_missing(TANDEM_CUDA_REASON "${toolkit}" "${cuDNN_VERSION}")
endif()

if(TANDEM_CUDA_REASON)
  set(TANDEM_HAS_CUDA OFF)
  if(TANDEM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TANDEM_CUDA=ON, but ${TANDEM_CUDA_REASON}")
  endif()
else()
  set(TANDEM_HAS_CUDA ON)
endif()

# --- NVTX ----------------------------------------------------------------------------------------
# Headers only, so the host half has it too. A tool is loaded at run time.
set(TANDEM_NVTX AUTO CACHE STRING "Ranges for profilers: AUTO (where nvtx3 is found), ON, OFF")
set_property(CACHE TANDEM_NVTX PROPERTY STRINGS AUTO ON OFF)
if(NOT TANDEM_NVTX MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TANDEM_NVTX is '${TANDEM_NVTX}'; allowed: AUTO, ON, OFF")
endif()
find_path(TANDEM_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(TANDEM_NVTX_INCLUDE_DIR)

add_library(tandem_nvtx INTERFACE)
if(TANDEM_NVTX STREQUAL "OFF")
  set(TANDEM_NVTX_SUMMARY "off (TANDEM_NVTX=OFF)")
elseif(TANDEM_NVTX_INCLUDE_DIR)
  set(TANDEM_NVTX_SUMMARY "on (${TANDEM_NVTX_INCLUDE_DIR})")
  target_include_directories(tandem_nvtx SYSTEM INTERFACE "${TANDEM_NVTX_INCLUDE_DIR}")
  target_compile_definitions(tandem_nvtx INTERFACE TANDEM_HAS_NVTX=1)
elseif(TANDEM_NVTX STREQUAL "ON")
  message(FATAL_ERROR "TANDEM_NVTX=ON, but nvtx3/nvToolsExt.h is not found")
else()
  set(TANDEM_NVTX_SUMMARY "off (nvtx3/nvToolsExt.h is not found)")
endif()

function(tandem_summary)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  if(TANDEM_HAS_CUDA)
    set(cuda "CUDA ${CUDAToolkit_VERSION}, cuDNN ${cuDNN_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  else()
    set(cuda "off (${TANDEM_CUDA_REASON}); everything runs on the host backend")
  endif()
  if(TANDEM_SANITIZE)
    set(sanitizers "   sanitizers: ${TANDEM_SANITIZE}")
  endif()
  message(STATUS "tandem ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}")
  message(STATUS "  CUDA:      ${cuda}")
  message(STATUS "  NVTX:      ${TANDEM_NVTX_SUMMARY}")
  message(STATUS "  OpenBLAS:  ${OPENBLAS_VERSION}")
  message(STATUS "  program:   ${TANDEM_PROGRAM}   tests: ${TANDEM_TESTS}${sanitizers}")
endfunction()
