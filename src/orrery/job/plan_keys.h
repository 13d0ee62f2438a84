// The plan's enums under the names that job files use, and most of them tables of
// measured runs (search/validate).
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "orrery/base/named.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

using orrery::Choose;
using orrery::Find;
using orrery::NameOf;

inline constexpr std::array<Named<workload::Precision>, 3> kPrecisions = {
    {{"bf16", workload::Precision::kBf16},
     {"fp16", workload::Precision::kFp16},
     {"fp32", workload::Precision::kFp32}}};
// Precisions of linear layers beside bf16; fp8 is split by recipe.
inline constexpr std::array<Named<workload::LowPrecision>, 2> kLowPrecisions = {
    {{"mxfp8", workload::LowPrecision::kMxfp8}, {"nvfp4", workload::LowPrecision::kNvfp4}}};
inline constexpr std::array<Named<workload::LowPrecision>, 3> kFp8Recipes = {
    {{"delayed", workload::LowPrecision::kDelayed},
     {"current", workload::LowPrecision::kCurrent},
     {"blockwise", workload::LowPrecision::kBlockwise}}};
inline constexpr std::array<Named<workload::CpExchange>, 3> kCpExchanges = {
    {{"ring", workload::CpExchange::kRing},
     {"all-gather", workload::CpExchange::kAllGather},
     {"all-to-all", workload::CpExchange::kAllToAll}}};
inline constexpr std::array<Named<workload::RankOrder>, 2> kRankOrders = {
    {{"tp-cp-dp-pp", workload::RankOrder::kDpPp}, {"tp-cp-pp-dp", workload::RankOrder::kPpDp}}};
inline constexpr std::array<Named<workload::Optimizer>, 7> kOptimizers = {
    {{"adam", workload::Optimizer::kAdam},
     {"adamw", workload::Optimizer::kAdam},
     {"adafactor", workload::Optimizer::kAdafactor},
     {"muon", workload::Optimizer::kMuon},
     {"sgd", workload::Optimizer::kSgd},
     {"lion", workload::Optimizer::kLion},
     {"lamb", workload::Optimizer::kLamb}}};
inline constexpr std::array<Named<workload::OptimizerStates>, 6> kOptimizerStates = {
    {{"full", workload::OptimizerStates::kFull},
     {"fp32", workload::OptimizerStates::kFp32},
     {"8bit", workload::OptimizerStates::k8bit},
     {"4bit", workload::OptimizerStates::k4bit},
     {"fp8", workload::OptimizerStates::kFp8},
     {"bf16", workload::OptimizerStates::kBf16}}};
inline constexpr std::array<Named<workload::BaseWeights>, 4> kBaseWeights = {
    {{"none", workload::BaseWeights::kModelType},
     {"nf4", workload::BaseWeights::kNf4},
     {"fp4", workload::BaseWeights::kFp4},
     {"int8", workload::BaseWeights::kInt8}}};
inline constexpr std::array<Named<workload::ExpertAdapterKind>, 5> kExpertAdapterKinds = {
    {{"none", workload::ExpertAdapterKind::kNone},
     {"parameters", workload::ExpertAdapterKind::kParameters},
     {"modules", workload::ExpertAdapterKind::kModules},
     {"grouped", workload::ExpertAdapterKind::kGrouped},
     {"shared", workload::ExpertAdapterKind::kShared}}};
inline constexpr std::array<Named<workload::CudaGraphs>, 3> kCudaGraphs = {
    {{"none", workload::CudaGraphs::kNone},
     {"layers", workload::CudaGraphs::kLayers},
     {"iteration", workload::CudaGraphs::kIteration}}};
inline constexpr std::array<Named<workload::Recompute>, 3> kRecomputes = {
    {{"none", workload::Recompute::kNone},
     {"selective", workload::Recompute::kSelective},
     {"full", workload::Recompute::kFull}}};
inline constexpr std::array<Named<workload::RecomputeMethod>, 3> kRecomputeMethods = {
    {{"uniform", workload::RecomputeMethod::kUniform},
     {"block", workload::RecomputeMethod::kBlock},
     {"every", workload::RecomputeMethod::kEvery}}};
inline constexpr std::array<Named<workload::TorchLayers>, 3> kTorchLayers = {
    {{"fused", workload::TorchLayers::kFused},
     {"compiled", workload::TorchLayers::kCompiled},
     {"eager", workload::TorchLayers::kEager}}};
inline constexpr std::array<Named<workload::RecomputeKeeps>, 6> kRecomputeKeeps = {
    {{"nothing", workload::RecomputeKeeps::kNothing},
     {"last", workload::RecomputeKeeps::kLast},
     {"qkv", workload::RecomputeKeeps::kQkv},
     {"qkv_out", workload::RecomputeKeeps::kQkvOut},
     {"products", workload::RecomputeKeeps::kProducts},
     {"every_other", workload::RecomputeKeeps::kEveryOther}}};
inline constexpr std::array<Named<workload::Sharding>, 4> kShardings = {
    {{"none", workload::Sharding::kNone},
     {"zero1", workload::Sharding::kZero1},
     {"zero2", workload::Sharding::kZero2},
     {"zero3", workload::Sharding::kZero3}}};
inline constexpr std::array<Named<workload::AttentionBackend>, 6> kAttentions = {
    {{"unfused", workload::AttentionBackend::kUnfused},
     {"flash1", workload::AttentionBackend::kFlash1},
     {"flash2", workload::AttentionBackend::kFlash2},
     {"flash3", workload::AttentionBackend::kFlash3},
     {"flash4", workload::AttentionBackend::kFlash4},
     {"cudnn", workload::AttentionBackend::kCudnn}}};

// Precision as a job file says it: that of the linear layers.
inline std::string_view PrecisionName(const workload::Plan& plan) {
  if (plan.precision.low == workload::LowPrecision::kNone)
    return NameOf(kPrecisions, plan.precision.type);
  const std::string_view name = NameOf(kLowPrecisions, plan.precision.low);
  return name == "?" ? "fp8" : name;
}

// Keys at the top of a job file that have a section of their own.
inline std::span<const std::string_view> TopKeys() {
  static constexpr std::array<std::string_view, 18> kKeys = {
      "model",  "cluster", "parallel",    "training",   "framework_options",
      "nccl",   "perturb", "simulation",  "memory",     "loggops",
      "packet", "jobs",    "assume",      "collective", "data",
      "cost",   "goodput", "interference"};
  return kKeys;
}

}  // namespace orrery::job
