# SPDX-License-Identifier: Apache-2.0
# Install rules and the CMake package `tandem`: find_package(tandem) gives tandem::kernels_host,
# tandem::engine_host and tandem::models; COMPONENTS cuda adds tandem::kernels and tandem::engine.
# From source, add_subdirectory() gives the same names.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tandem")

# tandem_export(<set> <target>...): installs the targets; <set> is what find_package() reads.
function(tandem_export set)
  foreach(target IN LISTS ARGN)
    string(REGEX REPLACE "^tandem_" "" name "${target}")
    set_target_properties(${target} PROPERTIES EXPORT_NAME "${name}")
    install(TARGETS ${target} EXPORT ${set}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endforeach()
  install(EXPORT ${set} NAMESPACE tandem:: DESTINATION "${package_dir}")
endfunction()

tandem_export(tandemHostTargets tandem_kernels_host tandem_engine_host tandem_models)
if(TANDEM_HAS_CUDA)
  tandem_export(tandemCudaTargets tandem_kernels tandem_engine)
endif()

foreach(folder kernels engine models)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tandem/${folder}" FILES_MATCHING PATTERN "*.hpp")
endforeach()
if(TANDEM_PROGRAM)
  install(TARGETS tandem_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file(engine/tandemConfig.cmake.in "${PROJECT_BINARY_DIR}/tandemConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/tandemConfig.cmake"
  "${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake"
  engine/FindcuDNN.cmake
  DESTINATION "${package_dir}")
