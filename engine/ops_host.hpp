// SPDX-License-Identifier: Apache-2.0
// Host bodies of the operations: they unpack the operands and call the twins in kernels/. One a
// kind, of the same name; for the registry. The operation has passed check_operation().
#pragma once

#include <cstddef>
#include <tandem/engine/operation.hpp>

namespace tandem::host {

void copy(const Operation& op, void* const* pointers);
void cast(const Operation& op, void* const* pointers);
void u8_to_float(const Operation& op, void* const* pointers);
void augment(const Operation& op, void* const* pointers);
void permute(const Operation& op, void* const* pointers);

void conv1x1_forward(const Operation& op, void* const* pointers);
void conv1x1_backward_data(const Operation& op, void* const* pointers);
void conv1x1_backward_weights(const Operation& op, void* const* pointers);
void conv2x2_forward(const Operation& op, void* const* pointers);
void conv2x2_backward_data(const Operation& op, void* const* pointers);
void conv2x2_backward_weights(const Operation& op, void* const* pointers);
void tconv2x2_forward(const Operation& op, void* const* pointers);
void tconv2x2_backward_data(const Operation& op, void* const* pointers);
void tconv2x2_backward_weights(const Operation& op, void* const* pointers);
void conv3x3_forward(const Operation& op, void* const* pointers);
void conv3x3_backward_data(const Operation& op, void* const* pointers);
void conv3x3_backward_weights(const Operation& op, void* const* pointers);

void bias_forward(const Operation& op, void* const* pointers);
void bias_backward(const Operation& op, void* const* pointers);
void relu_forward(const Operation& op, void* const* pointers);
void relu_backward(const Operation& op, void* const* pointers);
void sigmoid_forward(const Operation& op, void* const* pointers);
void sigmoid_backward(const Operation& op, void* const* pointers);

void bias_relu_forward(const Operation& op, void* const* pointers);
void relu_bias_backward(const Operation& op, void* const* pointers);
void conv1x1_update(const Operation& op, void* const* pointers);
void conv2x2_update(const Operation& op, void* const* pointers);
void tconv2x2_update(const Operation& op, void* const* pointers);
void sgd_many(const Operation& op, void* const* pointers);
void conv3x3_loss(const Operation& op, void* const* pointers);
void conv3x3_loss_backward(const Operation& op, void* const* pointers);

void softmax_cross_entropy(const Operation& op, void* const* pointers);
void binary_cross_entropy(const Operation& op, void* const* pointers);
void argmax(const Operation& op, void* const* pointers);

void l2_penalty(const Operation& op, void* const* pointers);
void sgd(const Operation& op, void* const* pointers);
void sgd_momentum(const Operation& op, void* const* pointers);

/// Bytes of workspace.
std::size_t conv3x3_forward_bytes(const Operation& op);
std::size_t conv3x3_backward_data_bytes(const Operation& op);
std::size_t conv3x3_backward_weights_bytes(const Operation& op);

}  // namespace tandem::host
