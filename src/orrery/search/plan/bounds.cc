#include "orrery/search/plan/bounds.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "orrery/formats/section.h"
#include "orrery/job/job.h"

namespace orrery::search {
namespace {

using formats::Node;

constexpr double kRounding = 0.999;

// Keys of degrees, and between which values the sums below stay in 64 bits and divide by no 0. The
// job's own ranges (job/tables.h) are no wider; 0 stands for what is not said.
struct Member {
  std::string_view key;
  std::int64_t Degrees::*member;
  std::int64_t least, most;
};
constexpr Member kMembers[] = {
    {"parallel.tp", &Degrees::tp, 1, 1 << 12},
    {"parallel.pp", &Degrees::pp, 1, 1 << 12},
    {"parallel.vpp", &Degrees::vpp, 1, 1 << 12},
    {"parallel.cp", &Degrees::cp, 1, 1 << 12},
    {"parallel.ep", &Degrees::ep, 1, 1 << 12},
    {"parallel.dp", &Degrees::dp, 0, 1 << 20},
    {"nodes", &Degrees::nodes, 0, 1 << 20},
    {"training.micro_batch", &Degrees::micro_batch, 1, 1 << 20},
    {"training.global_batch", &Degrees::global_batch, 0, std::int64_t{1} << 32},
};

bool InRange(const Degrees& degrees) {
  return std::ranges::all_of(kMembers, [&](const Member& m) {
    return degrees.*m.member >= m.least && degrees.*m.member <= m.most;
  });
}

// Keys in which members of a family differ.
constexpr std::string_view kWithinFamily[] = {"parallel.pp", "parallel.vpp", "parallel.dp",
                                              "nodes"};

std::optional<std::int64_t> Whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// Whether how many layers are recomputed depends on how they are cut into chunks.
bool RecomputesByChunk(const OpenJob& open) {
  constexpr std::string_view kMethod = "training.recompute_method";
  const std::vector<std::string> keys = open.space.Keys();
  return NodeAt(open.job.document.root, kMethod) != nullptr ||
         std::find(keys.begin(), keys.end(), kMethod) != keys.end();
}

bool OfCluster(const std::string& key) { return key == "cluster" || key.starts_with("cluster."); }

// GPUs of a host with the values of a point; 0 where they make no cluster.
std::int64_t HostSizeWith(const std::vector<std::string>& keys,
                          const std::vector<std::string>& values, formats::Document document,
                          const std::string& folder) {
  for (std::size_t k = 0; k < keys.size(); ++k) {
    if (!OfCluster(keys[k])) continue;
    if (!formats::ApplySet(keys[k] + "=" + values[k], &document).ok()) return 0;
  }
  const Result<cluster::Spec> spec = job::ReadClusterTree(document, folder);
  return spec.ok() ? spec->gpus_per_node : 0;
}

}  // namespace

Result<HostSizes> HostSizesOf(const OpenJob& open) {
  const formats::Document document = WithFirstCluster(open.job.document);
  ORRERY_ASSIGN_OR_RETURN(const cluster::Spec spec,
                          job::ReadClusterTree(document, open.job.folder));
  HostSizes hosts{.axis = {}, .gpus = {spec.gpus_per_node}};
  const std::vector<Axis>& axes = open.space.axes();
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (std::ranges::none_of(axes[a].keys, OfCluster)) continue;
    std::vector<std::int64_t> gpus;
    for (const std::vector<std::string>& point : axes[a].points) {
      gpus.push_back(HostSizeWith(axes[a].keys, point, document, open.job.folder));
    }
    if (std::ranges::all_of(gpus, [&](auto one) { return one == spec.gpus_per_node; })) continue;
    // Two axes decide it together: not known.
    hosts = hosts.axis ? HostSizes{.axis = {}, .gpus = {0}}
                       : HostSizes{.axis = a, .gpus = std::move(gpus)};
    if (!hosts.axis) break;
  }
  return hosts;
}

PointReader::PointReader(const OpenJob& open, HostSizes hosts, std::int64_t layers)
    : hosts_(std::move(hosts)), layers_(layers) {
  for (const auto& [key, member, least, most] : kMembers) {
    const Node* node = NodeAt(open.job.document.root, key);
    if (node == nullptr || node->kind != Node::Kind::kScalar) continue;
    if (const auto value = Whole(node->text)) base_.*member = *value;
  }
  const bool by_chunk = RecomputesByChunk(open);
  const std::vector<Axis>& axes = open.space.axes();
  for (std::size_t a = 0; a < axes.size(); ++a) {
    axis_points_.push_back(axes[a].points.size());
    bool within = true;
    for (std::size_t k = 0; k < axes[a].keys.size(); ++k) {
      const std::string& key = axes[a].keys[k];
      const bool cuts = key == "parallel.pp" || key == "parallel.vpp";
      within = within && !(by_chunk && cuts) &&
               std::find(std::begin(kWithinFamily), std::end(kWithinFamily), key) !=
                   std::end(kWithinFamily);
      for (const auto& [name, member, least, most] : kMembers) {
        if (name != key) continue;
        Field field{.axis = a, .member = member, .values = {}};
        for (const auto& point : axes[a].points) {
          field.values.push_back(Whole(point[k]).value_or(base_.*member));
        }
        fields_.push_back(std::move(field));
      }
      if (key != "parallel.sequence_parallel") continue;
      sequence_axis_ = a;
      for (const auto& point : axes[a].points) {
        sequence_on_.push_back(point[k] == "true");
        any_off_ = any_off_ || point[k] == "false";
      }
    }
    of_family_.push_back(!within);
  }
  const std::vector<std::string> keys = open.space.Keys();
  sized_ = base_.nodes > 0 || std::find(keys.begin(), keys.end(), "nodes") != keys.end();
}

Degrees PointReader::At(const std::vector<std::size_t>& digits) const {
  Degrees degrees = base_;
  for (const Field& field : fields_) degrees.*field.member = field.values[digits[field.axis]];
  degrees.gpus_per_node = hosts_.gpus[hosts_.axis ? digits[*hosts_.axis] : 0];
  return degrees;
}

std::int64_t PointReader::DataParallel(const Degrees& d) const {
  if (!InRange(d)) return 0;
  if (d.dp > 0) return d.dp;
  return sized_ ? d.nodes * d.gpus_per_node / (d.tp * d.pp * d.cp) : 1;
}

std::int64_t PointReader::Gpus(const Degrees& d) const {
  return InRange(d) ? d.tp * d.pp * d.cp * DataParallel(d) : 0;
}

std::string_view PointReader::Refuse(const Degrees& d, const std::vector<std::size_t>& digits,
                                     bool* equal) const {
  *equal = false;
  if (!InRange(d)) return {};
  if (sequence_axis_ && d.tp == 1 && any_off_ && sequence_on_[digits[*sequence_axis_]]) {
    *equal = true;
    return "sequence_parallel changes nothing without tensor parallelism";
  }
  if (d.pp * d.vpp > layers_) return "more pipeline chunks than layers";
  if (d.pp == 1 && d.vpp > 1) return "chunks (vpp) without pipeline stages";
  if (!sized_ || d.gpus_per_node == 0) return {};
  const std::int64_t gpus = d.nodes * d.gpus_per_node, replica = d.tp * d.pp * d.cp;
  if (d.dp > 0 ? replica * d.dp > gpus : gpus % replica != 0 || gpus < replica) {
    return "tp · pp · cp · dp does not fit the number of GPUs";
  }
  if (d.global_batch > 0 && d.global_batch % (d.micro_batch * DataParallel(d)) != 0) {
    return "the global batch is no multiple of micro_batch · dp";
  }
  return {};
}

std::uint64_t PointReader::Family(const std::vector<std::size_t>& digits) const {
  std::uint64_t family = 0;
  for (std::size_t a = 0; a < digits.size(); ++a) {
    if (of_family_[a]) family = family * axis_points_[a] + digits[a];
  }
  return family;
}

double PointReader::WorkBound(const FamilyWork& work, const Degrees& d) const {
  const std::int64_t dp = DataParallel(d);
  if (d.global_batch <= 0 || dp == 0) return 0;
  const double m = static_cast<double>(d.global_batch) / static_cast<double>(d.micro_batch * dp);
  return m * (work.layers_ps + work.ends_ps) / static_cast<double>(d.pp) * kRounding;
}

double PointReader::StepBound(const FamilyWork& work, const Degrees& d) const {
  const std::int64_t dp = DataParallel(d);
  if (d.global_batch <= 0 || dp == 0) return 0;
  const double m = static_cast<double>(d.global_batch) / static_cast<double>(d.micro_batch * dp);
  const auto stages = static_cast<double>(d.pp);
  double bound = m * (work.layers_ps + work.ends_ps) / stages;
  if (work.fills && layers_ % (d.pp * d.vpp) == 0) {
    const double t = work.layers_ps / stages;
    bound = std::max(bound, m * t + (stages - 1) * t / static_cast<double>(d.vpp));
  }
  return bound * kRounding;
}

}  // namespace orrery::search
