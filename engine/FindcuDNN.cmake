# SPDX-License-Identifier: Apache-2.0
# Finds cuDNN and makes the target cuDNN::cudnn. Results: cuDNN_FOUND, cuDNN_VERSION (major.minor).
# Looks beside the CUDA toolkit too, so call find_package(CUDAToolkit) first.
find_path(cuDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(cuDNN_LIBRARY cudnn
  HINTS ${CUDAToolkit_LIBRARY_DIR} "${CUDAToolkit_LIBRARY_ROOT}/lib" "${cuDNN_INCLUDE_DIR}/../lib")
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

set(cuDNN_VERSION "")
if(cuDNN_INCLUDE_DIR)
  file(STRINGS "${cuDNN_INCLUDE_DIR}/cudnn_version.h" _cudnn_lines
    REGEX "define CUDNN_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE ".*CUDNN_MAJOR +([0-9]+).*CUDNN_MINOR +([0-9]+).*" "\\1.\\2"
    cuDNN_VERSION "${_cudnn_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN
  REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)

if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION "${cuDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
