#include "orrery/workload/importers/simai/lines.h"

#include <fmt/format.h>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

// By name and communication: times may differ.
bool Alike(const TextLayer& x, const TextLayer& y) {
  const auto same = [](const TextPhase& p, const TextPhase& q) {
    return p.comm == q.comm && p.bytes == q.bytes;
  };
  return x.name == y.name && same(x.forward, y.forward) &&
         same(x.input_gradient, y.input_gradient) && same(x.weight_gradient, y.weight_gradient);
}

}  // namespace

SimaiBody FindBody(const std::vector<TextLayer>& layers, std::size_t repeats) {
  SimaiBody best;
  const std::size_t n = layers.size();
  for (std::size_t begin = 0; begin < n; ++begin) {
    if (best.length * repeats >= n - begin) break;
    for (std::size_t length = (n - begin) / repeats; length > best.length; --length) {
      bool all = true;
      for (std::size_t i = begin + length; all && i < begin + length * repeats; ++i) {
        all = Alike(layers[i], layers[i - length]);
      }
      if (!all) continue;
      best = {begin, length};
      break;
    }
  }
  return best;
}

namespace {

// Equal runs of lines within a micro-batch's. No count: there are none.
struct Runs {
  std::size_t before = 0, each = 0, count = 0;
};
Runs FindRuns(const std::vector<TextLayer>& layers, const SimaiBody& body, std::size_t count) {
  for (std::size_t around = 0; around + count <= body.length; ++around) {
    if ((body.length - around) % count != 0) continue;
    const std::size_t each = (body.length - around) / count;
    for (std::size_t before = around + 1; before-- > 0;) {
      const std::size_t begin = body.begin + before;
      bool all = true;
      for (std::size_t i = begin + each; all && i < begin + each * count; ++i) {
        all = Alike(layers[i], layers[i - each]);
      }
      for (std::size_t i = body.begin; all && i < body.begin + body.length; ++i) {
        const bool beside = i < begin || i >= begin + each * count;
        for (std::size_t k = begin; all && beside && k < begin + each; ++k) {
          all = !Alike(layers[i], layers[k]);
        }
      }
      if (all) return {before, each, count};
    }
  }
  return {};
}

}  // namespace

std::vector<std::size_t> FindChunks(const std::vector<TextLayer>& layers, const SimaiBody& body,
                                    std::size_t chunks) {
  if (chunks == 1) return {0, body.length};
  const Runs runs = FindRuns(layers, body, chunks);
  if (runs.count == 0) return {};
  std::vector<std::size_t> found = {0};
  for (std::size_t c = 1; c < chunks; ++c) found.push_back(runs.before + c * runs.each);
  found.push_back(body.length);
  return found;
}

namespace {

// The most equal runs that a micro-batch's lines can be cut into: its layers.
Runs FindLayers(const std::vector<TextLayer>& layers, const SimaiBody& body) {
  for (std::size_t n = body.length; n > 1; --n) {
    const Runs runs = FindRuns(layers, body, n);
    if (runs.count > 0) return runs;
  }
  return {0, body.length, 1};
}

Result<SimaiBody> NeedBody(const std::vector<TextLayer>& layers, std::size_t micro_batches) {
  const SimaiBody body = FindBody(layers, micro_batches);
  if (body.length > 0) return body;
  return InvalidInput(
      "ga is {}, and no lines repeat as often: which lines are a layer's cannot be told",
      micro_batches);
}

std::int64_t Scaled(std::int64_t value, std::int64_t times, std::int64_t parts) {
  const auto half = static_cast<Uint128>(parts / 2);
  return static_cast<std::int64_t>(
      (static_cast<Uint128>(value) * static_cast<Uint128>(times) + half) /
      static_cast<Uint128>(parts));
}

// What stands around the micro-batches: gradients of all of a rank's weights.
void ScaleGradients(std::size_t begin, std::size_t end, std::int64_t times, std::int64_t parts,
                    std::vector<TextLayer>* layers) {
  for (std::size_t i = 0; i < layers->size(); ++i) {
    TextPhase& gradients = (*layers)[i].weight_gradient;
    if (i < begin || i >= end) gradients.bytes = Scaled(gradients.bytes, times, parts);
  }
}

}  // namespace

Status MoveStages(std::int64_t from, std::int64_t to, std::size_t micro_batches,
                  std::vector<TextLayer>* layers, std::vector<std::string>* assumed) {
  if (from == to) return {};
  ORRERY_ASSIGN_OR_RETURN(const SimaiBody body, NeedBody(*layers, micro_batches));
  const Runs runs = FindLayers(*layers, body);
  const std::size_t own = runs.count, each = runs.each, before = runs.before;
  const std::size_t behind = body.length - before - own * each;
  const auto all = static_cast<std::int64_t>(own) * from;
  if (all % to != 0 || to > all) {
    return InvalidInput("{} layers, {} in each of {} stages, are no multiple of {} stages", all,
                        own, from, to);
  }
  const auto wanted = static_cast<std::size_t>(all / to);
  constexpr std::size_t kMostLines = 10'000'000;  // as of a file
  if ((before + wanted * each + behind) * micro_batches > kMostLines) {
    return InvalidInput("{} layers on each of {} stages are more than {} lines", wanted, to,
                        kMostLines);
  }
  const std::size_t end = body.begin + body.length * micro_batches;
  ScaleGradients(body.begin, end, from, to, layers);
  std::vector<TextLayer> moved(layers->begin(),
                               layers->begin() + static_cast<std::ptrdiff_t>(body.begin));
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const std::size_t begin = body.begin + m * body.length;
    const auto copy = [&](std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) moved.push_back((*layers)[begin + first + i]);
    };
    copy(0, before);
    for (std::size_t l = 0; l < wanted; ++l) copy(before + l % own * each, each);
    copy(before + own * each, behind);
  }
  moved.insert(moved.end(), layers->begin() + static_cast<std::ptrdiff_t>(end), layers->end());
  *layers = std::move(moved);
  assumed->push_back(fmt::format(
      "{} stages of {} layers in place of {} of {}: lines around the layers (the embedding) stay "
      "on "
      "every stage, messages between stages and ga stay, and gradients' bytes go with the layers",
      to, wanted, from, own));
  return {};
}

Status MoveShards(std::int64_t from, std::int64_t to, std::size_t micro_batches,
                  std::vector<TextLayer>* layers, std::vector<std::string>* assumed) {
  if (from == to) return {};
  ORRERY_ASSIGN_OR_RETURN(const SimaiBody body, NeedBody(*layers, micro_batches));
  for (const TextLayer& layer : *layers) {
    for (const TextPhase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient}) {
      if (!phase->comm.ends_with("_EP")) continue;
      return InvalidInput(
          "layer '{}' has {}: how the messages of experts change with the tensor-parallel size a "
          "workload does not say",
          Printable(layer.name, 60), phase->comm);
    }
  }
  const std::size_t end = body.begin + body.length * micro_batches;
  ScaleGradients(body.begin, end, from, to, layers);
  for (TextLayer& layer : *layers) {
    for (TextPhase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient}) {
      phase->time = Scaled(phase->time, from, to);
    }
  }
  assumed->push_back(fmt::format(
      "TP {} in place of {}: every line's times are {}/{} of the file's, as if smaller kernels "
      "were as efficient and all of their work were divided; a layer's messages hold whole "
      "activations and stay, gradients' bytes are divided",
      to, from, from, to));
  return {};
}

}  // namespace orrery::workload
