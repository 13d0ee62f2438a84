#include "orrery/workload/conv_net.h"

#include <algorithm>
#include <array>

namespace orrery::workload {
namespace {

using ConvKind = ConvOp::Kind;

constexpr std::int32_t kImageSide = 224, kImageChannels = 3;

// Appends operations one after another, and closes units.
class Builder {
 public:
  explicit Builder(ConvNet* net) : net_(net) {}

  struct Place {
    std::int32_t channels, side;
  };
  Place place() const { return at_; }

  void Conv(std::int32_t out, std::int32_t kernel, std::int32_t stride, bool bias) {
    ConvOp op{.kind = ConvKind::kConv, .kernel = kernel, .stride = stride, .bias = bias};
    op.first = net_->order.empty() && unit_.ops.empty();
    Add(op, out, at_.side / stride);
  }
  void BatchNorm() { Add({.kind = ConvKind::kBatchNorm}, at_.channels, at_.side); }
  void Relu() { Add({.kind = ConvKind::kRelu}, at_.channels, at_.side); }
  void Dropout() { Add({.kind = ConvKind::kDropout}, at_.channels, at_.side); }
  void MaxPool(std::int32_t kernel) {
    Add({.kind = ConvKind::kMaxPool, .kernel = kernel, .stride = 2}, at_.channels, at_.side / 2);
  }
  void AveragePool(std::int32_t side) { Add({.kind = ConvKind::kAveragePool}, at_.channels, side); }
  void Linear(std::int32_t out) {
    at_ = {at_.channels * at_.side * at_.side, 1};
    Add({.kind = ConvKind::kLinear, .bias = true}, out, 1);
  }
  // 1 × 1 convolution and norm beside what follows, which starts where they did.
  void Shortcut(std::int32_t out, std::int32_t stride) {
    const Place from = at_;
    Conv(out, 1, stride, false);
    BatchNorm();
    unit_.ops.back().temporary = true;
    at_ = from;
  }
  void AddShortcut() { Add({.kind = ConvKind::kAdd}, at_.channels, at_.side); }

  void EndUnit(std::string_view name) {
    unit_.name = name;
    for (std::size_t i = unit_.ops.size(); i-- > 0;) {
      const ConvKind kind = unit_.ops[i].kind;
      if (kind == ConvKind::kRelu || kind == ConvKind::kAdd) continue;
      unit_.ops[i].last = true;
      break;
    }
    const auto same = std::find_if(net_->units.begin(), net_->units.end(),
                                   [&](const ConvUnit& u) { return u.ops == unit_.ops; });
    net_->order.push_back(static_cast<std::uint8_t>(same - net_->units.begin()));
    if (same == net_->units.end()) net_->units.push_back(unit_);
    unit_.ops.clear();
  }

 private:
  void Add(ConvOp op, std::int32_t out, std::int32_t out_side) {
    op.in = at_.channels, op.in_side = at_.side;
    op.out = out, op.out_side = out_side;
    unit_.ops.push_back(op);
    at_ = {out, out_side};
  }

  ConvNet* net_;
  ConvUnit unit_;
  Place at_{kImageChannels, kImageSide};
};

// Configuration E, without batch norm.
ConvNet Vgg19() {
  ConvNet net{.name = "vgg-19",
              .description = "VGG-19, images of 224 x 224, 144M",
              .source = "Simonyan and Zisserman 2014, configuration E; torchvision vgg19",
              .units = {},
              .order = {}};
  Builder b(&net);
  constexpr std::array<std::array<std::int32_t, 2>, 5> kStages = {
      {{64, 2}, {128, 2}, {256, 4}, {512, 4}, {512, 4}}};
  for (const auto& [width, count] : kStages) {
    for (std::int32_t i = 1; i <= count; ++i) {
      b.Conv(width, 3, 1, true);
      b.Relu();
      if (i == count) b.MaxPool(2);
      b.EndUnit("convolution");
    }
  }
  for (const std::int32_t width : {4096, 4096}) {
    b.Linear(width);
    b.Relu();
    b.Dropout();
    b.EndUnit("linear");
  }
  b.Linear(kImageClasses);
  b.EndUnit("classifier");
  return net;
}

ConvNet ResNet(std::string_view name, std::string_view description,
               const std::array<std::int32_t, 4>& blocks) {
  ConvNet net{.name = name,
              .description = description,
              .source = "He et al. 2015; torchvision, stride in the 3 x 3 convolution",
              .units = {},
              .order = {}};
  Builder b(&net);
  b.Conv(64, 7, 2, false);
  b.BatchNorm();
  b.Relu();
  b.MaxPool(3);
  b.EndUnit("stem");
  std::int32_t width = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
    for (std::int32_t i = 0; i < blocks[stage]; ++i) {
      const std::int32_t stride = i == 0 && stage > 0 ? 2 : 1;
      if (i == 0) b.Shortcut(4 * width, stride);
      b.Conv(width, 1, 1, false);
      b.BatchNorm();
      b.Relu();
      b.Conv(width, 3, stride, false);
      b.BatchNorm();
      b.Relu();
      b.Conv(4 * width, 1, 1, false);
      b.BatchNorm();
      b.AddShortcut();
      b.Relu();
      b.EndUnit("bottleneck");
    }
  }
  b.AveragePool(1);
  b.Linear(kImageClasses);
  b.EndUnit("classifier");
  return net;
}

}  // namespace

std::vector<std::int64_t> ConvUnit::parameters() const {
  std::vector<std::int64_t> tensors;
  for (const ConvOp& op : ops) {
    if (op.kind == ConvKind::kConv || op.kind == ConvKind::kLinear) {
      tensors.push_back(std::int64_t{op.out} * op.in * op.kernel * op.kernel);
      if (op.bias) tensors.push_back(op.out);
    }
    if (op.kind == ConvKind::kBatchNorm) tensors.insert(tensors.end(), 2, op.out);
  }
  return tensors;
}

std::int64_t ConvUnit::outputs() const { return ops.back().outputs(); }

std::int64_t ConvNet::parameters() const {
  std::int64_t sum = 0;
  for (const std::uint8_t unit : order) {
    for (const std::int64_t n : units[unit].parameters()) sum += n;
  }
  return sum;
}

double ConvNet::flops_per_image() const {
  std::int64_t products = 0;
  for (const std::uint8_t unit : order) {
    for (const ConvOp& op : units[unit].ops) products += (op.first ? 2 : 3) * op.products();
  }
  return 2.0 * static_cast<double>(products);
}

std::span<const ConvNet> ConvNets() {
  static const std::vector<ConvNet> nets = {
      Vgg19(), ResNet("resnet-50", "ResNet-50, images of 224 x 224, 25.6M", {3, 4, 6, 3}),
      ResNet("resnet-152", "ResNet-152, images of 224 x 224, 60.2M", {3, 8, 36, 3})};
  return nets;
}

}  // namespace orrery::workload
