// SPDX-License-Identifier: Apache-2.0
// Taking ownership is said by name.
// expect: conversion from
#include <tandem/engine/stream.hpp>
#include <utility>

void f(tandem::StreamRef raw) {
  tandem::Stream owner = tandem::Stream::adopt(raw);
#if defined(MUST_NOT_COMPILE)
  tandem::Stream accident = raw;
#endif
}
