#include "on_ray.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "orrery/base/file.h"
#include "run_python.h"

namespace orrery::app {
namespace {

using Json = nlohmann::ordered_json;

// A folder of its own, removed with what is in it.
class Folder {
 public:
  static Result<Folder> Create() {
    const char* base = std::getenv("TMPDIR");
    std::string path =
        std::string(base != nullptr && *base != 0 ? base : "/tmp") + "/orrery-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return ResourceError("cannot make a folder {}: {}", path, std::strerror(errno));
    }
    return Folder(std::move(path));
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    if (path_.empty()) return;
    unlink(request().c_str());
    unlink(answer().c_str());
    rmdir(path_.c_str());
  }
  std::string request() const { return path_ + "/request.json"; }
  std::string answer() const { return path_ + "/answer.json"; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace

Result<search::Sweep> SweepOnRay(const RayRequest& request, const search::Space& space) {
  Json axes = Json::array();
  for (const search::Axis& axis : space.axes()) axes.push_back({axis.keys, axis.points});
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const Json json = {{"job", request.job},
                     {"set", request.set},
                     {"network", or_null(request.network)},
                     {"calibration", or_null(request.calibration)},
                     {"axes", std::move(axes)},
                     {"replay", request.replay},
                     {"threads", request.threads},
                     {"shards", request.shards > 0 ? Json(request.shards) : Json()}};
  ORRERY_ASSIGN_OR_RETURN(const Folder folder, Folder::Create());
  ORRERY_RETURN_IF_ERROR(WriteFile(folder.request(), json.dump()));
  ORRERY_ASSIGN_OR_RETURN(const int status,
                          RunPython({"-m", "orrery._on_ray", folder.request(), folder.answer()}));
  if (status != 0) {
    constexpr std::string_view kRemedy =
        "--on ray: the Python half said why above; it needs the package (./run --python) and Ray "
        "(pip install ray) in the Python of $ORRERY_PYTHON, else python3";
    if (status == 2) return InvalidInput("{}", kRemedy);
    if (status == 1) return Status(Code::kResource, std::string(kRemedy));
    return ResourceError("{}", kRemedy);
  }
  constexpr std::int64_t kMostBytes = std::int64_t{16} << 30;
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder.answer(), kMostBytes));
  return search::SweepFromJson(text, "Ray's answer");
}

}  // namespace orrery::app
