// Convolutional networks for images as lists of units: VGG-19, ResNet-50 and ResNet-152.
//
// A unit is what a pipeline stage may end after: VGG's convolution with what follows it, ResNet's
// stem, bottleneck or classifier. Shapes are those of torchvision for 224 × 224 images and 1,000
// classes. Units are per image; sizes in elements. An image counts as one token.
// Sources: Simonyan and Zisserman 2014 (configuration E); He et al. 2015, stride in the 3 × 3
// convolution as torchvision has it ("v1.5").
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace orrery::workload {

struct ConvOp {
  enum class Kind : std::uint8_t {
    kConv,
    kBatchNorm,
    kRelu,  // in place
    kMaxPool,
    kAveragePool,
    kLinear,
    kDropout,
    kAdd,  // of the shortcut, in place
  };
  Kind kind = Kind::kConv;
  std::int32_t in = 0, out = 0;  // channels; features of a linear layer
  std::int32_t kernel = 1, stride = 1;
  std::int32_t in_side = 1, out_side = 1;
  bool bias = false;
  bool first = false;      // of the network: its input needs no gradient
  bool last = false;       // its output is the unit's, kept by the unit behind
  bool temporary = false;  // its output is not needed in backward (a shortcut's norm)

  std::int64_t inputs() const { return std::int64_t{in} * in_side * in_side; }
  std::int64_t outputs() const { return std::int64_t{out} * out_side * out_side; }
  // Multiply-adds of a forward pass.
  std::int64_t products() const {
    return kind == Kind::kConv || kind == Kind::kLinear ? outputs() * in * kernel * kernel : 0;
  }
  friend bool operator==(const ConvOp&, const ConvOp&) = default;
};

struct ConvUnit {
  std::string_view name;
  std::vector<ConvOp> ops;
  // Elements of each parameter tensor, in the order of named_parameters().
  std::vector<std::int64_t> parameters() const;
  std::int64_t inputs() const { return ops.front().inputs(); }
  std::int64_t outputs() const;
};

struct ConvNet {
  std::string_view name, description, source;
  std::vector<ConvUnit> units;      // distinct ones
  std::vector<std::uint8_t> order;  // which of them comes when

  std::int64_t parameters() const;
  double flops_per_image() const;  // forward and backward
};

inline constexpr std::int64_t kImageClasses = 1000;

std::span<const ConvNet> ConvNets();

}  // namespace orrery::workload
