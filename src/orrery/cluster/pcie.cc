#include "orrery/cluster/pcie.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/cluster.h"

namespace orrery::cluster {
namespace {

// Latencies (PcieTreeSpec's defaults). A switch: 105 ns cut through between x16 ports of Broadcom's
// PEX88000 (Gen4), 150 ns of its Gen3 PEX9700 (Linley Newsletter, 24 September 2019); a root
// complex is taken as no faster. A socket link: estimate, one hop of UPI or xGMI beside a root
// complex.

// Between sockets, one direction, as NCCL's topology search has it (topo.h): AMD 16 GB/s; Intel 10
// of Skylake's generation, 22 from Sapphire Rapids on.
constexpr std::int64_t kGiga = 1'000'000'000;
std::int64_t SocketRate(const Spec& spec) {
  if (spec.cpu_is_amd) return 16 * kGiga;
  const bool old = spec.device.arch == Arch::kVolta || spec.device.arch == Arch::kAmpere;
  return (old ? 10 : 22) * kGiga;
}

constexpr int kMostNodes = 256, kMostDepth = 8;

struct Layout {
  int gpus_per_switch = 0;  // 0: no switches
  bool one_root = false;
  bool nics_at_root = false;
};
struct Row {
  PcieTreeInfo info;
  Layout layout;
};
constexpr std::array kRows = {
    Row{{"switch-per-pair",
         "two GPUs and the NICs beside them under a switch, two sockets (DGX A100, HGX H100)"},
        {2, false, false}},
    Row{{"switch-per-four",
         "four GPUs and their NICs under a switch, a switch a socket (8-GPU PCIe servers)"},
        {4, false, false}},
    Row{{"single-root",
         "four GPUs and their NICs under a switch, all switches under one root complex"},
        {4, true, false}},
    Row{{"nics-at-root",
         "four GPUs under a switch, a switch a socket, NICs at the root complexes (PHB)"},
        {4, false, true}},
    Row{{"no-switch", "GPUs and NICs at the root complexes of two sockets"}, {0, false, true}},
};

// The tree of a host of so many GPUs; a NIC stands with the first GPU that it is nearest to.
std::string Expand(const Layout& layout, int gpus, int nics) {
  const int per_switch = layout.gpus_per_switch > 0 ? layout.gpus_per_switch : gpus;
  const int switches = (gpus + per_switch - 1) / per_switch;
  // Without switches a socket has half of the GPUs, else half of the switches.
  const int half =
      layout.gpus_per_switch > 0 ? (switches + 1) / 2 * per_switch : std::max(1, (gpus + 1) / 2);
  std::string text;
  std::string at_root;
  for (int g = 0; g < gpus; ++g) {
    if (g == half && !layout.one_root) {
      text += at_root + " |";
      at_root.clear();
    }
    const bool switched = layout.gpus_per_switch > 0;
    if (!text.empty()) text += " ";
    if (switched && g % per_switch == 0) text += "(";
    text += "g";
    if (g % (gpus / nics) == 0) (layout.nics_at_root ? at_root : text) += " n";
    if (switched && (g % per_switch == per_switch - 1 || g == gpus - 1)) text += ")";
  }
  return text + at_root;
}

}  // namespace

std::string_view Name(PcieDistance distance) {
  constexpr std::string_view kNames[] = {"PIX", "PXB", "PHB", "SYS"};
  return kNames[static_cast<std::size_t>(distance)];
}

std::span<const PcieTreeInfo> PcieTrees() {
  static constexpr auto kInfos = [] {
    std::array<PcieTreeInfo, kRows.size()> infos{};
    for (std::size_t i = 0; i < kRows.size(); ++i) infos[i] = kRows[i].info;
    return infos;
  }();
  return kInfos;
}

Status CheckPcieTreeName(std::string_view name) {
  std::array<std::string_view, kRows.size()> names;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    names[i] = kRows[i].info.name;
    if (names[i] == name) return {};
  }
  return InvalidInput("{}", UnknownName("PCIe tree", name, names));
}

// Reads the text of a tree.
class PcieTree::Parser {
 public:
  Parser(std::string_view text, const Spec& spec, PcieTree* tree)
      : text_(text), spec_(spec), tree_(*tree) {}

  Status Run() {
    AddNode(kNone);
    std::vector<std::uint32_t> open;  // switches around the place
    for (Skip(); at_ < text_.size(); Skip()) {
      const std::size_t here = at_;
      const char c = text_[at_++];
      const std::uint32_t node = open.empty() ? tree_.roots_.back() : open.back();
      if (c == 'g' || c == 'n') {
        ORRERY_ASSIGN_OR_RETURN(const std::int64_t Bps, Rate(spec_.pcie_Bps));
        (c == 'g' ? tree_.gpu_ : tree_.nic_).push_back({node, Bps});
      } else if (c == '(') {
        if (open.size() == kMostDepth) return Wrong(here, "more than 8 switches in each other");
        open.push_back(AddNode(node));
      } else if (c == ')' && !open.empty()) {
        const std::int64_t uplink = spec_.pcie_tree.uplink_Bps;
        ORRERY_ASSIGN_OR_RETURN(tree_.nodes_[open.back()].up_Bps,
                                Rate(uplink > 0 ? uplink : spec_.pcie_Bps));
        open.pop_back();
      } else if (c == '|' && open.empty()) {
        AddNode(kNone);
      } else {
        return Wrong(here, c == '|'   ? "a socket ends where all switches are closed"
                           : c == ')' ? "closes no switch"
                                      : "must be g (a GPU), n (a NIC), ( ) or |");
      }
      if (tree_.nodes_.size() > kMostNodes)
        return Wrong(here, "more than 256 switches and sockets");
    }
    if (!open.empty()) return Wrong(text_.size(), "a switch is not closed");
    return Count();
  }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == ',')) ++at_;
  }
  std::uint32_t AddNode(std::uint32_t above) {
    const auto number = static_cast<std::uint32_t>(tree_.nodes_.size());
    Node node;
    node.above = above;
    if (above == kNone) {
      node.socket = node.number = static_cast<std::uint32_t>(tree_.roots_.size());
      tree_.roots_.push_back(number);
    } else {
      node.socket = tree_.nodes_[above].socket;
      node.number = switches_++;
    }
    tree_.nodes_.push_back(node);
    return number;
  }
  // ":12.5" if it stands here, in GB/s.
  Result<std::int64_t> Rate(std::int64_t otherwise) {
    if (at_ == text_.size() || text_[at_] != ':') return otherwise;
    const std::size_t here = ++at_;
    std::int64_t whole = 0, milli = 0, place = 100;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && whole < 100'000; ++at_) {
      whole = 10 * whole + (text_[at_] - '0');
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      for (++at_; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
           ++at_, place /= 10) {
        milli += place * (text_[at_] - '0');
      }
    }
    const std::int64_t Bps = whole * kGiga + milli * 1'000'000;
    if (Bps <= 0 || whole >= 100'000) {
      return Wrong(here, "a rate is GB/s above 0 and below 100000, as in g:12.5");
    }
    return Bps;
  }
  Status Wrong(std::size_t at, std::string_view why) const {
    return InvalidInput("pcie_tree.tree = '{}', character {}: {}", Printable(text_, 80), at + 1,
                        why);
  }
  Status Count() const {
    const auto gpus = static_cast<int>(tree_.gpu_.size());
    const auto nics = static_cast<int>(tree_.nic_.size());
    if (gpus != spec_.gpus_per_node) {
      return InvalidInput("pcie_tree.tree = '{}': {} GPUs (g), but gpus_per_node = {}",
                          Printable(text_, 80), gpus, spec_.gpus_per_node);
    }
    if (nics != spec_.nics_per_node) {
      return InvalidInput("pcie_tree.tree = '{}': {} NICs (n), but nics_per_node = {}",
                          Printable(text_, 80), nics, spec_.nics_per_node);
    }
    return {};
  }

  const std::string_view text_;
  const Spec& spec_;
  PcieTree& tree_;
  std::size_t at_ = 0;
  std::uint32_t switches_ = 0;
};

Result<PcieTree> PcieTree::Make(const Spec& spec) {
  PcieTree tree;
  const PcieTreeSpec& t = spec.pcie_tree;
  if (!t.any()) return tree;
  tree.text_ = t.tree;
  if (t.tree.empty()) {
    ORRERY_RETURN_IF_ERROR(CheckPcieTreeName(t.name));
    for (const Row& row : kRows) {
      if (row.info.name == t.name) {
        tree.text_ = Expand(row.layout, spec.gpus_per_node, spec.nics_per_node);
      }
    }
  }
  if (!t.nvlinks.empty()) {
    ORRERY_ASSIGN_OR_RETURN(tree.nvlinks_, NvlinkMesh::Parse(t.nvlinks, spec.gpus_per_node));
    if (!t.peers || spec.gpus_per_nvlink_domain != spec.gpus_per_node) {
      return InvalidInput(
          "pcie_tree.nvlinks = '{}': GPUs that it does not join meet over PCIe; set "
          "pcie_tree.peers to pcie, and gpus_per_nvlink_domain to gpus_per_node = {}",
          Printable(t.nvlinks, 80), spec.gpus_per_node);
    }
  }
  const std::string text = tree.text_;
  ORRERY_RETURN_IF_ERROR(Parser(text, spec, &tree).Run());
  if (t.peers && spec.gpus_per_nvlink_domain > spec.gpus_per_node) {
    return InvalidInput(
        "pcie_tree.peers = pcie: gpus_per_nvlink_domain = {} is more than a host's {} GPUs; PCIe "
        "ends at the host",
        spec.gpus_per_nvlink_domain, spec.gpus_per_node);
  }
  if (t.uplink_latency < 0 || t.socket_latency < 0 || t.uplink_latency > kSecond ||
      t.socket_latency > kSecond) {
    return InvalidInput("pcie_tree: latencies must be 0 to 1 s");
  }
  tree.Finish(spec);
  return tree;
}

void PcieTree::Finish(const Spec& spec) {
  socket_Bps_ = spec.pcie_tree.socket_Bps > 0 ? spec.pcie_tree.socket_Bps : SocketRate(spec);
  end_latency_ = spec.pcie_latency - spec.pcie_latency / 2;
  uplink_latency_ = spec.pcie_tree.uplink_latency;
  socket_latency_ = spec.pcie_tree.socket_latency;
  mtu_bytes_ = spec.nic_mtu_bytes + spec.nic_header_bytes;
  auto next = static_cast<std::uint32_t>(2 * nic_.size());
  for (Node& node : nodes_) {
    if (node.above == kNone) continue;
    node.up_link = next;
    next += 2;
  }
}

std::size_t PcieTree::links() const {
  const std::size_t sockets = roots_.size();
  if (sockets == 0) return 0;
  return 2 * nic_.size() + 2 * (nodes_.size() - sockets) + sockets * (sockets - 1) +
         2 * nvlinks_.pairs();
}

LinkId PcieTree::Nvlink(std::size_t from_gpu, std::size_t to_gpu, std::size_t first) const {
  return LinkId(first + links() - 2 * nvlinks_.pairs() + nvlinks_.index(from_gpu, to_gpu));
}

// Of the link from one root complex to another, among a host's.
std::size_t PcieTree::SocketLink(std::uint32_t from, std::uint32_t to) const {
  const std::size_t sockets = roots_.size();
  const std::size_t before = 2 * nic_.size() + 2 * (nodes_.size() - sockets);
  return before + from * (sockets - 1) + (to > from ? to - 1 : to);
}

void PcieTree::AddLinks(const Spec& spec, std::uint32_t first_gpu, std::uint32_t first_nic,
                        std::uint32_t first_node, std::vector<Link>* links) const {
  const auto add = [&](LinkKind kind, std::uint32_t from, std::uint32_t to, std::int64_t Bps,
                       SimTime latency) {
    links->push_back({kind, from, to, Bps, latency, mtu_bytes_});
  };
  for (std::uint32_t n = 0; n < nic_.size(); ++n) {
    const std::uint32_t node = first_node + nic_[n].node;
    add(LinkKind::kPcie, first_nic + n, node, nic_[n].Bps, end_latency_);
    add(LinkKind::kPcie, node, first_nic + n, nic_[n].Bps, end_latency_);
  }
  for (std::uint32_t s = 0; s < nodes_.size(); ++s) {
    const Node& node = nodes_[s];
    if (node.above == kNone) continue;
    add(LinkKind::kPcieUp, first_node + s, first_node + node.above, node.up_Bps, uplink_latency_);
    add(LinkKind::kPcieUp, first_node + node.above, first_node + s, node.up_Bps, uplink_latency_);
  }
  for (std::uint32_t a = 0; a < roots_.size(); ++a) {
    for (std::uint32_t b = 0; b < roots_.size(); ++b) {
      if (a == b) continue;
      add(LinkKind::kSocket, first_node + roots_[a], first_node + roots_[b], socket_Bps_,
          socket_latency_);
    }
  }
  const auto gpus = static_cast<std::uint32_t>(nvlinks_.gpus());
  for (std::uint32_t a = 0; a < gpus; ++a) {
    for (std::uint32_t b = 0; b < gpus; ++b) {
      const int count = nvlinks_.links(a, b);
      if (count == 0) continue;
      links->push_back(
          {LinkKind::kNvlink, first_gpu + a, first_gpu + b,
           std::max<std::int64_t>(1, spec.nvlink_reached_Bps() * count / nvlinks_.most()),
           spec.nvlink_latency, spec.nvlink_packet_bytes + spec.nvlink_header_bytes});
    }
  }
}

// Links from the node `from` to the node `to`, in order.
void PcieTree::Climb(std::uint32_t from, std::uint32_t to, std::size_t first,
                     std::vector<LinkId>* path) const {
  const auto to_root = [&](std::uint32_t node) {
    std::array<std::uint32_t, kMostDepth + 2> chain{};
    std::size_t length = 0;
    for (; node != kNone; node = nodes_[node].above) chain[length++] = node;
    return std::pair{chain, length};
  };
  auto [a, a_length] = to_root(from);
  auto [b, b_length] = to_root(to);
  // The part above the lowest common node is not taken.
  while (a_length > 1 && b_length > 1 && a[a_length - 2] == b[b_length - 2] &&
         a[a_length - 1] == b[b_length - 1]) {
    --a_length, --b_length;
  }
  for (std::size_t i = 0; i + 1 < a_length; ++i) {
    path->push_back(LinkId(first + nodes_[a[i]].up_link));
  }
  if (a[a_length - 1] != b[b_length - 1]) {
    path->push_back(LinkId(first + SocketLink(nodes_[from].socket, nodes_[to].socket)));
  }
  for (std::size_t i = b_length - 1; i-- > 0;) {
    path->push_back(LinkId(first + nodes_[b[i]].up_link + 1));
  }
}

void PcieTree::Between(std::size_t from_gpu, std::size_t to_gpu, std::size_t first,
                       std::vector<LinkId>* path) const {
  Climb(gpu_[from_gpu].node, gpu_[to_gpu].node, first, path);
}

void PcieTree::ToNic(std::size_t gpu, std::size_t nic, std::size_t first,
                     std::vector<LinkId>* path) const {
  Climb(gpu_[gpu].node, nic_[nic].node, first, path);
  path->push_back(LinkId(first + 2 * nic + 1));
}

void PcieTree::FromNic(std::size_t nic, std::size_t gpu, std::size_t first,
                       std::vector<LinkId>* path) const {
  path->push_back(LinkId(first + 2 * nic));
  Climb(nic_[nic].node, gpu_[gpu].node, first, path);
}

PcieDistance PcieTree::Distance(std::uint32_t a, std::uint32_t b) const {
  if (nodes_[a].socket != nodes_[b].socket) return PcieDistance::kSys;
  std::vector<LinkId> path;
  Climb(a, b, 0, &path);
  if (path.empty()) return nodes_[a].above == kNone ? PcieDistance::kPhb : PcieDistance::kPix;
  // The highest node of the way: a root complex if one of the ends' climbs reaches it.
  const auto depth = [&](std::uint32_t node) {
    std::size_t d = 0;
    for (; nodes_[node].above != kNone; node = nodes_[node].above) ++d;
    return d;
  };
  return depth(a) + depth(b) == path.size() ? PcieDistance::kPhb : PcieDistance::kPxb;
}

PcieDistance PcieTree::gpu_to_gpu(std::size_t a, std::size_t b) const {
  return Distance(gpu_[a].node, gpu_[b].node);
}

PcieDistance PcieTree::gpu_to_nic(std::size_t gpu, std::size_t nic) const {
  return Distance(gpu_[gpu].node, nic_[nic].node);
}

std::string PcieTree::NodeName(std::size_t node) const {
  return fmt::format("{}{}", nodes_[node].above == kNone ? "root" : "switch", nodes_[node].number);
}

std::uint32_t PcieTree::ExchangeStretch(const Spec& spec,
                                        std::span<const std::uint32_t> gpus) const {
  if (gpus.size() < 2 || !any()) return 1024;
  std::int64_t slowest = gpu_[gpus[0]].Bps;
  std::vector<std::uint64_t> pairs(links(), 0);
  std::vector<LinkId> path;
  for (const std::uint32_t a : gpus) {
    slowest = std::min(slowest, gpu_[a].Bps);
    for (const std::uint32_t b : gpus) {
      if (a == b || nvlinks_.links(a, b) > 0) continue;
      path.clear();
      Between(a, b, 0, &path);
      for (const LinkId id : path) ++pairs[id.index()];
    }
  }
  std::vector<Link> rates;
  AddLinks(spec, 0, 0, 0, &rates);
  std::uint64_t stretch = 1024;
  for (std::size_t l = 0; l < pairs.size(); ++l) {
    // pairs / rate over (gpus - 1) / slowest.
    const double times =
        static_cast<double>(pairs[l]) * static_cast<double>(slowest) /
        (static_cast<double>(rates[l].bandwidth_Bps) * static_cast<double>(gpus.size() - 1));
    stretch = std::max(stretch, static_cast<std::uint64_t>(times * 1024));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(stretch, 1U << 30));
}

}  // namespace orrery::cluster
