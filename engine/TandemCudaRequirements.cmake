# SPDX-License-Identifier: Apache-2.0
# Which CUDA toolkit and cuDNN are new enough. A function of two versions, so that a test can ask.

# Sets `out` to why the CUDA half cannot be built, or to nothing. An empty version: not found.
function(tandem_cuda_missing out toolkit_version cudnn_version)
  set(reason "")
  if(toolkit_version STREQUAL "")
    set(reason "nvcc was found, but not the libraries of the CUDA toolkit")
  elseif(toolkit_version VERSION_LESS 12.4)
    set(reason "CUDA ${toolkit_version} is older than 12.4")
  elseif(cudnn_version STREQUAL "")
    set(reason "cuDNN was not found")
  elseif(cudnn_version VERSION_LESS 9.0)
    set(reason "cuDNN ${cudnn_version} is older than 9.0")
  endif()
  set(${out} "${reason}" PARENT_SCOPE)
endfunction()
