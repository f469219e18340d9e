// SPDX-License-Identifier: Apache-2.0
// The driver's contexts, below the runtime's devices: the runtime has no call that says which
// context is current, or that makes the caller's current again without making one. Found in the
// driver at run time, since a program that links it does not start where there is none. Private to
// the CUDA halves. The header needs no CUDA.
#pragma once

#include <cstdint>
#include <functional>

struct CUctx_st;  // what a CUcontext points to

namespace tandem {

/// The calling thread's context, or null where it has none yet: the runtime makes one when it needs
/// it. This and the other functions touch no error of the runtime and throw CudaError.
CUctx_st* current_context();

/// A number that no other context of the process has or had.
std::uint64_t context_id(CUctx_st* context);

/// Makes a context the calling thread's, and the one of before again.
void push_context(CUctx_st* context);
void pop_context();

/// Runs body() in a new thread, and waits: the calling thread's device, context and last error of
/// the runtime stay as they are. Throws what body() throws; CudaError where no thread is to be had.
void in_new_thread(const std::function<void()>& body);

/// The same with the device current there.
void in_device_thread(int device, const std::function<void()>& body);

/// The same for destructors, where a failure is of no use: even to destroy an event or a stream the
/// runtime makes a context on whatever device is current.
void destroy_in_device_thread(int device, const std::function<void()>& body) noexcept;

/// The context that the runtime uses on a device, made now if there is none, in such a thread.
CUctx_st* primary_context(int device);

}  // namespace tandem
