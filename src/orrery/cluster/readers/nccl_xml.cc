// NCCL's topology XML: one host, its PCIe tree included. A PCI element with PCI elements in it is a
// switch, a CPU a socket.
//
// Cloud vendors' files name no GPUs and NICs, as NCCL adds them when it finds them: there a PCI
// element of class 0x0302 (else 0x03) is a GPU, one of class 0x0207 (else 0x02) a NIC. What such a
// file cannot say stays as it was: the architecture, NVLink, the NICs' rate.
//
// NVLinks go by their targets: to a switch, all GPUs that have such share it; to another GPU, the
// two are joined (nvlink_mesh.h); to the GPU itself, to a CPU, or to a GPU that the file does not
// have, they join no GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/xml.h"

namespace orrery::cluster {
namespace {

using formats::XmlElement;

constexpr std::int64_t kGiga = 1'000'000'000;
constexpr std::int64_t kMostNvlinks = 1000;  // of a GPU; Blackwell has 18

struct Nvlinks {
  std::string target;
  std::int64_t count = 0;
  bool to_gpu = false, to_switch = false;
};
struct XmlGpu {
  std::string busid;
  std::vector<Nvlinks> links;
};
struct Nic {
  std::int64_t Bps = 0;   // 0: not said
  std::size_t token = 0;  // where it stands in the tree
};
// Of the tree's text: '(', ')', '|', 'g' or 'n', and the rate of its own link; 0: none.
struct Token {
  char kind = 0;
  std::int64_t Bps = 0;
};

class XmlReader {
 public:
  XmlReader(const std::string& name, Spec* spec) : name_(name), spec_(spec) {}

  Status Read(const XmlElement& root) {
    if (root.name == "graphs") {
      return InvalidInput(
          "{}:{}: NCCL's graphs (NCCL_GRAPH_DUMP_FILE), which say no topology; a job takes them as "
          "nccl: {{NCCL_GRAPH_FILE: ...}}, a cluster takes what NCCL_TOPO_DUMP_FILE writes",
          name_, root.line);
    }
    if (root.name != "system") {
      return InvalidInput("{}:{}: <{}>: NCCL's topology begins with <system>", name_, root.line,
                          Printable(root.name, 40));
    }
    infer_gpus_ = !Has(root, "gpu");
    infer_nics_ = !Has(root, "net");
    gpu_class_ = HasClass(root, "0x0302") ? "0x0302" : "0x03";
    nic_class_ = HasClass(root, "0x0207") ? "0x0207" : "0x02";
    ORRERY_RETURN_IF_ERROR(Walk(root, 0));
    return Finish(root.line);
  }

 private:
  static bool Has(const XmlElement& e, std::string_view name) {
    return e.name == name ||
           std::ranges::any_of(e.children, [&](const auto& child) { return Has(child, name); });
  }
  static bool IsClass(const XmlElement& e, std::string_view prefix) {
    const std::string* text = e.Find("class");
    return text != nullptr && text->starts_with(prefix);
  }
  static bool HasClass(const XmlElement& e, std::string_view prefix) {
    return IsClass(e, prefix) || std::ranges::any_of(e.children, [&](const auto& child) {
             return HasClass(child, prefix);
           });
  }

  Result<std::int64_t> Integer(const XmlElement& e, std::string_view key, std::int64_t most,
                               std::int64_t fallback) const {
    const std::string* text = e.Find(key);
    if (text == nullptr) return fallback;
    const Result<std::int64_t> value = ParseInteger(*text);
    if (value.ok() && *value >= 0 && *value <= most) return *value;
    return InvalidInput("{}:{}: {} = '{}' of <{}>: must be a whole number from 0 to {}", name_,
                        e.line, key, Printable(*text, 40), Printable(e.name, 20), most);
  }

  // As NCCL: width times the lane's rate in units of 100 Mb/s over 80 is GB/s.
  Result<std::int64_t> PcieRate(const XmlElement& pci, std::int64_t above) const {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t width, Integer(pci, "link_width", 64, 16));
    const std::string* speed = pci.Find("link_speed");
    double gigatransfers = 8;  // unknown: Gen3
    if (speed != nullptr) {
      for (const double known : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
        if (speed->starts_with(fmt::format("{:.1f}", known)) ||
            speed->starts_with(fmt::format("{} ", known))) {
          gigatransfers = known;
        }
      }
    }
    // Its lane rates: 15, 30, 60, 120, 240, 480 for 2.5 to 64 GT/s.
    const double lane = gigatransfers < 5 ? 15 : gigatransfers < 8 ? 30 : gigatransfers * 7.5;
    const double GBps = static_cast<double>(width == 0 ? 16 : width) * lane / 80;
    return std::min(above, static_cast<std::int64_t>(GBps * 1e9));
  }

  void Cpu(const XmlElement& cpu) {
    const std::string* vendor = cpu.Find("vendor");
    if (vendor != nullptr) spec_->cpu_is_amd = *vendor == "AuthenticAMD";
    const std::string* arch = cpu.Find("arch");  // Arm hosts of NVIDIA's GPUs: Grace
    if (arch != nullptr) spec_->cpu_is_grace = *arch == "arm64";
    if (HasEnds(0)) tree_.push_back({'|', 0});
  }

  Status Walk(const XmlElement& e, std::int64_t pcie) {
    const bool bridge = e.name == "pci" && std::ranges::any_of(e.children, [](const auto& child) {
                          return child.name == "pci";
                        });
    if (e.name == "cpu") {
      Cpu(e);
    } else if (e.name == "pci") {
      const std::int64_t most = std::numeric_limits<std::int64_t>::max();
      ORRERY_ASSIGN_OR_RETURN(rate_, PcieRate(e, most));
      pcie = pcie > 0 ? std::min(pcie, rate_) : rate_;
      if (const std::string* busid = e.Find("busid")) busid_ = Lower(*busid);
      if (!bridge && infer_gpus_ && IsClass(e, gpu_class_)) {
        ORRERY_RETURN_IF_ERROR(AddGpu(e, pcie));
      } else if (!bridge && infer_nics_ && IsClass(e, nic_class_)) {
        AddNic(0);
      }
    } else if (e.name == "gpu") {
      ORRERY_RETURN_IF_ERROR(AddGpu(e, pcie));
    } else if (e.name == "net") {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t megabits, Integer(e, "speed", 100'000'000, 0));
      AddNic(megabits > 0 ? megabits * 125'000 : 10 * kGiga / 8);  // as NCCL: 10 Gb/s
    }
    const std::int64_t own = rate_;
    const std::size_t before = tree_.size();
    if (bridge) tree_.push_back({'(', 0});
    for (const XmlElement& child : e.children) ORRERY_RETURN_IF_ERROR(Walk(child, pcie));
    if (!bridge) return {};
    if (HasEnds(before)) {
      tree_.push_back({')', own});
    } else {
      tree_.resize(before);  // nothing that counts below it
    }
    return {};
  }

  bool HasEnds(std::size_t from) const {
    return std::any_of(tree_.begin() + static_cast<std::ptrdiff_t>(from), tree_.end(),
                       [](const Token& t) { return t.kind == 'g' || t.kind == 'n'; });
  }

  void AddNic(std::int64_t Bps) {
    nics_.push_back({Bps, tree_.size()});
    tree_.push_back({'n', rate_});
  }

  Status AddGpu(const XmlElement& gpu, std::int64_t pcie) {
    tree_.push_back({'g', rate_});
    if (pcie > 0) pcie_ = pcie_ == 0 ? pcie : std::min(pcie_, pcie);
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t sm, Integer(gpu, "sm", 1000, 0));
    if (sm_ != 0 && sm != sm_) {
      return InvalidInput("{}:{}: sm = {} of <gpu>: another GPU has {}; hosts of one kind are read",
                          name_, gpu.line, sm, sm_);
    }
    sm_ = sm;
    gpus_.push_back({busid_, {}});
    for (const XmlElement& child : gpu.children) {
      if (child.name != "nvlink") continue;
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t count, Integer(child, "count", 1000, 1));
      const std::string* target = child.Find("target");
      const std::string* tclass = child.Find("tclass");
      const std::string_view kind = tclass != nullptr ? std::string_view(*tclass) : "";
      // Any class but a GPU's and that of a CPU's bridge is a switch, as in NCCL.
      gpus_.back().links.push_back({target != nullptr ? Lower(*target) : "", count,
                                    kind.starts_with("0x03"),
                                    !kind.starts_with("0x03") && kind != "0x068001"});
    }
    return {};
  }

  Status SetDevice(int line) {
    const Arch arch = sm_ >= 100  ? Arch::kBlackwell
                      : sm_ >= 90 ? Arch::kHopper
                      : sm_ >= 80 ? Arch::kAmpere
                                  : Arch::kVolta;
    if (spec_->device.sms == 0 && arch != Arch::kVolta) {
      ORRERY_ASSIGN_OR_RETURN(const Spec preset,
                              FindPreset(arch == Arch::kBlackwell ? "b200-ib-400g"
                                         : arch == Arch::kHopper  ? "h100-ib-400g"
                                                                  : "a100-80g-ib-200g"));
      spec_->device = preset.device;
    }
    if (sm_ == 0 || spec_->device.arch == arch) return {};
    return InvalidInput("{}:{}: sm = {}: not the architecture of {}; start from another preset",
                        name_, line, sm_, spec_->device.name);
  }

  Status Finish(int line) {
    if (gpus_.empty() || gpus_.size() > 1024) {
      return InvalidInput(
          "{}:{}: {} GPUs, by <gpu> elements or, where there are none, by PCI class 0x03; a host "
          "has 1 to 1024",
          name_, line, gpus_.size());
    }
    ORRERY_RETURN_IF_ERROR(SetDevice(line));
    spec_->gpus_per_node = static_cast<int>(gpus_.size());
    if (pcie_ > 0) spec_->pcie_Bps = pcie_;
    std::string nvlinks;
    const bool keeps_nvlink =
        infer_gpus_ && spec_->gpus_per_nvlink_domain > 1 && !spec_->pcie_tree.peers;
    if (keeps_nvlink) {
      spec_->gpus_per_nvlink_domain = spec_->gpus_per_node;
    } else {
      ORRERY_ASSIGN_OR_RETURN(nvlinks, SetNvlinks(line));
    }
    const bool peers = !keeps_nvlink && (!nvlinks.empty() || spec_->nvlink_Bps == 0);
    ORRERY_RETURN_IF_ERROR(SetNics(line, peers));
    SetTree(std::move(nvlinks), peers);
    return {};
  }

  // What joins GPUs without a switch, as PcieTreeSpec::nvlinks; the rate and the domain.
  Result<std::string> SetNvlinks(int line) {
    const std::size_t n = gpus_.size();
    std::vector<std::int64_t> to_switch(n, 0), to_gpu(n * n, 0);
    for (std::size_t a = 0; a < n; ++a) {
      for (const Nvlinks& link : gpus_[a].links) {
        if (link.to_switch) to_switch[a] += link.count;
        if (!link.to_gpu) continue;
        const auto b = std::ranges::find(gpus_, link.target, &XmlGpu::busid);
        if (b == gpus_.end()) continue;
        to_gpu[a * n + static_cast<std::size_t>(b - gpus_.begin())] += link.count;
      }
      if (to_switch[a] > kMostNvlinks) {
        return InvalidInput("{}:{}: {} NVLinks of one <gpu> to switches; at most {} are read",
                            name_, line, to_switch[a], kMostNvlinks);
      }
    }
    // 50 GB/s a link since Blackwell, 25 before (data sheets); the header makes NCCL's rate of it.
    const std::int64_t rate = (sm_ >= 100 ? 50 : 25) * kGiga;
    spec_->gpus_per_nvlink_domain = spec_->gpus_per_node;
    const auto [least, most] = std::ranges::minmax(to_switch);
    if (least == 0 && most > 0) {
      return InvalidInput(
          "{}:{}: NVLinks to a switch at some <gpu> elements and none at others; leave those out "
          "that do not take part",
          name_, line);
    }
    spec_->nvlink_Bps = least * rate;
    if (least > 0) return std::string();
    std::string text;
    std::vector<std::int64_t> own(n, 0);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        const std::int64_t links = std::min(to_gpu[a * n + b], to_gpu[b * n + a]);
        if (a == b || links == 0) continue;
        own[a] += links;
        if (a < b) text += fmt::format("{}{}-{}:{}", text.empty() ? "" : " ", a, b, links);
      }
    }
    spec_->nvlink_Bps = std::ranges::max(own) * rate;
    return text;
  }

  // A NIC a GPU, or one for several, is what Spec has. More of them become one of their sum, as
  // NCCL's channels spread over those beside a GPU.
  Status SetNics(int line, bool peers) {
    if (nics_.empty()) {
      if (peers && rate_ > 0) {
        spec_->nics_per_node = 1;  // which the tree needs: at the first root complex
        rate_ = spec_->pcie_Bps;
        tree_.insert(tree_.begin(), {'n', rate_});
        spec_->sources.push_back(name_ + ": no NIC in it; one is taken at its first root complex");
      } else if (spec_->gpus_per_node % spec_->nics_per_node != 0) {
        spec_->nics_per_node = 1;
      }
      return {};
    }
    for (Nic& nic : nics_) nic.Bps = nic.Bps > 0 ? nic.Bps : spec_->nic_Bps;
    const std::size_t all = nics_.size();
    if (!Divide(all)) {  // beside training's there are slower ones
      const std::int64_t fastest = std::ranges::max(nics_, {}, &Nic::Bps).Bps;
      for (const Nic& nic : nics_) {
        if (nic.Bps < fastest) tree_[nic.token].kind = 0;
      }
      std::erase_if(nics_, [&](const Nic& nic) { return nic.Bps < fastest; });
    }
    if (!Divide(nics_.size())) {
      return InvalidInput(
          "{}:{}: {} NICs for {} GPUs: their numbers must divide one another; leave out those that "
          "training does not use",
          name_, line, all, gpus_.size());
    }
    if (nics_.size() < all) {
      spec_->sources.push_back(
          fmt::format("{}: {} of {} NICs are slower and left out", name_, all - nics_.size(), all));
    }
    const std::size_t each = std::max<std::size_t>(1, nics_.size() / gpus_.size());
    spec_->nics_per_node = static_cast<int>(nics_.size() / each);
    spec_->nic_Bps = std::ranges::min(nics_, {}, &Nic::Bps).Bps * static_cast<std::int64_t>(each);
    if (each == 1) return {};
    spec_->sources.push_back(
        fmt::format("{}: {} NICs a GPU, as one of their summed rate", name_, each));
    for (std::size_t i = 0; i < nics_.size(); ++i) {
      if (i % each == 0) continue;
      Token& own = tree_[nics_[i].token];
      tree_[nics_[i - i % each].token].Bps += own.Bps;
      own.kind = 0;
    }
    return {};
  }
  bool Divide(std::size_t nics) const {
    return gpus_.size() % nics == 0 || nics % gpus_.size() == 0;
  }

  // ":24" in GB/s, to the MB/s.
  static std::string RateText(std::int64_t Bps) {
    const std::int64_t mega = Bps / 1'000'000;
    if (mega % 1000 == 0) return fmt::format(":{}", mega / 1000);
    return fmt::format(":{}.{:03}", mega / 1000, mega % 1000);
  }

  // NICs that the file leaves out hang where they are not known to: no tree then.
  void SetTree(std::string nvlinks, bool peers) {
    if (rate_ == 0 || (nics_.empty() && !peers)) {
      if (peers) spec_->gpus_per_nvlink_domain = 1;
      return;
    }
    PcieTreeSpec& tree = spec_->pcie_tree;
    tree.name = tree.tree = "";
    for (const Token& token : tree_) {
      if (token.kind == 0) continue;
      const bool closes = token.kind == ')';
      if (!tree.tree.empty() && !closes && tree.tree.back() != '(') tree.tree += ' ';
      tree.tree += token.kind;
      if (token.Bps > 0) tree.tree += RateText(token.Bps);
    }
    tree.peers = peers;
    tree.nvlinks = std::move(nvlinks);
    if (!peers || !tree.nvlinks.empty()) return;
    spec_->nvlink_Bps = spec_->pcie_Bps;  // peers: as PCIe carries it, without headers beside
    spec_->nvlink_packet_bytes = 128;
    spec_->nvlink_header_bytes = 0;
    spec_->nvlink_latency = 0;
  }

  const std::string& name_;
  Spec* spec_;
  bool infer_gpus_ = false, infer_nics_ = false;
  std::string_view gpu_class_, nic_class_;
  std::vector<XmlGpu> gpus_;
  std::vector<Nic> nics_;
  std::vector<Token> tree_;
  std::int64_t sm_ = 0, pcie_ = 0;
  std::int64_t rate_ = 0;  // of the innermost PCI element's own link
  std::string busid_;      // and its number
};

}  // namespace

Status ApplyNcclXml(std::string_view text, const std::string& name, Spec* spec) {
  const formats::Limits limits{.bytes = 16 << 20, .depth = 64, .values = 500'000};
  ORRERY_ASSIGN_OR_RETURN(const XmlElement root, formats::ParseXml(text, name, limits));
  return XmlReader(name, spec).Read(root);
}

}  // namespace orrery::cluster
