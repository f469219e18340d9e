// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/sgd_math.hpp>

namespace tandem::host {

template <class T>
void sgd(const BatchHeader& header, const T* dw, T* w, std::int64_t count) {
  if (header.valid_count == 0) return;
  const SgdParameters<T> p = sgd_parameters<T>(header);
  for (std::int64_t i = 0; i < count; ++i) w[i] = sgd_weight(p, sgd_gradient(p, dw[i], w[i]), w[i]);
}

template <class T>
void sgd_momentum(const BatchHeader& header, const T* dw, T* v, T* w, std::int64_t count) {
  if (header.valid_count == 0) return;
  const SgdParameters<T> p = sgd_parameters<T>(header);
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = sgd_velocity(p, sgd_gradient(p, dw[i], w[i]), v[i]);
    w[i] = sgd_weight(p, v[i], w[i]);
  }
}

template <class T>
void sgd_many(const BatchHeader& header, const SgdTensor<T>* tensors, int count) {
  if (header.valid_count == 0) return;
  for (const SgdTensor<T>* t = tensors; t != tensors + count; ++t) {
    if (t->v == nullptr) {
      sgd(header, t->dw, t->w, t->elements);
    } else {
      sgd_momentum(header, t->dw, t->v, t->w, t->elements);
    }
    if (t->copy == nullptr) continue;
    for (std::int64_t i = 0; i < t->elements; ++i) t->copy[i] = bf16(static_cast<float>(t->w[i]));
  }
}

template void sgd(const BatchHeader&, const float*, float*, std::int64_t);
template void sgd(const BatchHeader&, const double*, double*, std::int64_t);
template void sgd_momentum(const BatchHeader&, const float*, float*, float*, std::int64_t);
template void sgd_momentum(const BatchHeader&, const double*, double*, double*, std::int64_t);
template void sgd_many(const BatchHeader&, const SgdTensor<float>*, int);
template void sgd_many(const BatchHeader&, const SgdTensor<double>*, int);

}  // namespace tandem::host
