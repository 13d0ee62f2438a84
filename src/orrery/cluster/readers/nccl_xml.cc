// NCCL's topology XML: one host, its PCIe tree included. A PCI element with PCI elements in it is a
// switch, a CPU a socket.
#include <algorithm>
#include <limits>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/xml.h"

namespace orrery::cluster {
namespace {

using formats::XmlElement;

constexpr std::int64_t kGiga = 1'000'000'000;

class Reader {
 public:
  Reader(const std::string& name, Spec* spec) : name_(name), spec_(spec) {}

  Status Read(const XmlElement& root) {
    if (root.name != "system") {
      return InvalidInput("{}:{}: <{}>: NCCL's topology begins with <system>", name_, root.line,
                          Printable(root.name, 40));
    }
    ORRERY_RETURN_IF_ERROR(Walk(root, 0));
    return Finish(root.line);
  }

 private:
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

  Status Walk(const XmlElement& e, std::int64_t pcie) {
    if (e.name == "cpu") {
      const std::string* vendor = e.Find("vendor");
      if (vendor != nullptr) spec_->cpu_is_amd = *vendor == "AuthenticAMD";
      const std::string* arch = e.Find("arch");  // Arm hosts of NVIDIA's GPUs: Grace
      if (arch != nullptr) spec_->cpu_is_grace = *arch == "arm64";
      if (tree_.find_first_of("gn") != std::string::npos) tree_ += " |";
    } else if (e.name == "pci") {
      const std::int64_t most = std::numeric_limits<std::int64_t>::max();
      ORRERY_ASSIGN_OR_RETURN(rate_, PcieRate(e, most));
      pcie = pcie > 0 ? std::min(pcie, rate_) : rate_;
    } else if (e.name == "gpu") {
      ORRERY_RETURN_IF_ERROR(Gpu(e, pcie));
    } else if (e.name == "net") {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t megabits, Integer(e, "speed", 100'000'000, 0));
      nics_.push_back(megabits > 0 ? megabits * 125'000 : 10 * kGiga / 8);  // as NCCL: 10 Gb/s
      tree_ += " n";
      if (rate_ > 0) tree_ += RateText(rate_);
    }
    const bool bridge = e.name == "pci" && std::ranges::any_of(e.children, [](const auto& child) {
                          return child.name == "pci";
                        });
    const std::int64_t own = rate_;
    const std::size_t before = tree_.size();
    if (bridge) tree_ += " (";
    for (const XmlElement& child : e.children) ORRERY_RETURN_IF_ERROR(Walk(child, pcie));
    if (!bridge) return {};
    if (tree_.find_first_of("gn", before) == std::string::npos) {
      tree_.resize(before);  // nothing that counts below it
    } else {
      tree_ += ')';
      tree_ += RateText(own);
    }
    return {};
  }

  // ":24" in GB/s, to the MB/s.
  static std::string RateText(std::int64_t Bps) {
    const std::int64_t mega = Bps / 1'000'000;
    if (mega % 1000 == 0) return fmt::format(":{}", mega / 1000);
    return fmt::format(":{}.{:03}", mega / 1000, mega % 1000);
  }

  Status Gpu(const XmlElement& gpu, std::int64_t pcie) {
    ++gpus_;
    tree_ += " g";
    if (rate_ > 0) tree_ += RateText(rate_);
    if (pcie > 0) pcie_ = pcie_ == 0 ? pcie : std::min(pcie_, pcie);
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t sm, Integer(gpu, "sm", 1000, 0));
    if (sm_ != 0 && sm != sm_) {
      return InvalidInput("{}:{}: sm = {} of <gpu>: another GPU has {}; hosts of one kind are read",
                          name_, gpu.line, sm, sm_);
    }
    sm_ = sm;
    std::int64_t links = 0;
    for (const XmlElement& child : gpu.children) {
      if (child.name != "nvlink") continue;
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t count, Integer(child, "count", 1000, 1));
      links += count;
    }
    nvlinks_ = gpus_ == 1 ? links : std::min(nvlinks_, links);
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
    if (gpus_ == 0 || gpus_ > 1024) {
      return InvalidInput("{}:{}: {} <gpu> elements; a host has 1 to 1024", name_, line, gpus_);
    }
    ORRERY_RETURN_IF_ERROR(SetDevice(line));
    spec_->gpus_per_node = static_cast<int>(gpus_);
    if (!nics_.empty()) {
      if (gpus_ % static_cast<std::int64_t>(nics_.size()) != 0) {
        return InvalidInput(
            "{}:{}: {} <net> elements: their number must divide that of the GPUs, {}; leave out "
            "those that training does not use",
            name_, line, nics_.size(), gpus_);
      }
      spec_->nics_per_node = static_cast<int>(nics_.size());
      spec_->nic_Bps = *std::min_element(nics_.begin(), nics_.end());
    } else if (gpus_ % spec_->nics_per_node != 0) {
      spec_->nics_per_node = 1;
    }
    if (pcie_ > 0) spec_->pcie_Bps = pcie_;
    // 50 GB/s a link since Blackwell, 25 before (data sheets); the header makes NCCL's rate of it.
    spec_->nvlink_Bps = nvlinks_ * (sm_ >= 100 ? 50 : 25) * kGiga;
    spec_->gpus_per_nvlink_domain = spec_->gpus_per_node;
    SetTree();
    return {};
  }

  // NICs that the file leaves out hang where they are not known to: no tree then.
  void SetTree() {
    if (nics_.empty() || rate_ == 0) {
      if (nvlinks_ == 0) spec_->gpus_per_nvlink_domain = 1;
      return;
    }
    PcieTreeSpec& tree = spec_->pcie_tree;
    tree.name = "";
    tree.tree = tree_.substr(tree_.find_first_not_of(" |"));
    for (std::size_t at = 0; (at = tree.tree.find("( ", at)) != std::string::npos;) {
      tree.tree.erase(at + 1, 1);
    }
    tree.peers = nvlinks_ == 0;
    if (nvlinks_ > 0) return;
    spec_->nvlink_Bps = spec_->pcie_Bps;  // peers: as PCIe carries it, without headers beside
    spec_->nvlink_packet_bytes = 128;
    spec_->nvlink_header_bytes = 0;
    spec_->nvlink_latency = 0;
  }

  const std::string& name_;
  Spec* spec_;
  std::int64_t gpus_ = 0, sm_ = 0, nvlinks_ = 0, pcie_ = 0;
  std::vector<std::int64_t> nics_;  // rates
  std::int64_t rate_ = 0;           // of the innermost PCI element's own link
  std::string tree_;                // as PcieTreeSpec::tree
};

}  // namespace

Status ApplyNcclXml(std::string_view text, const std::string& name, Spec* spec) {
  const formats::Limits limits{.bytes = 16 << 20, .depth = 64, .values = 500'000};
  ORRERY_ASSIGN_OR_RETURN(const XmlElement root, formats::ParseXml(text, name, limits));
  return Reader(name, spec).Read(root);
}

}  // namespace orrery::cluster
