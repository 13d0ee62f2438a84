// YAML through yaml-cpp's event interface: events come one by one, so that limits hold before a
// tree exists. yaml-cpp reports by exception; none leaves this file.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/formats/tree_builder.h"

namespace orrery::formats {
namespace {

// Carries a refusal out through yaml-cpp's frames.
struct RefusedYaml {
  Status status;
  YAML::Mark mark;
};

class YamlHandler final : public YAML::EventHandler {
 public:
  explicit YamlHandler(const Limits& limits) : builder_(limits) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "aliases (*name) are not accepted; write the value out");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    Refuse(mark, "anchors (&name) are not accepted; write the value out");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    CheckAnchor(mark, anchor);
    if (builder_.expects_key()) Refuse(mark, "an empty key");
    Check(mark, builder_.Null(Line(mark), Column(mark)));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckAnchor(mark, anchor);
    CheckTag(mark, tag);
    if (builder_.expects_key()) {
      if (value == "<<") Refuse(mark, "merge keys (<<) are not accepted; write the values out");
      Check(mark, builder_.Key(value, Line(mark), Column(mark)));
      return;
    }
    const bool quoted = tag == "!";
    if (!quoted && (value == "null" || value == "~" || value.empty())) {
      Check(mark, builder_.Null(Line(mark), Column(mark)));
    } else {
      Check(mark, builder_.Scalar(value, quoted, Line(mark), Column(mark)));
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { builder_.Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { builder_.Close(); }

  Node TakeRoot() { return builder_.TakeRoot(); }

 private:
  static std::int32_t Line(const YAML::Mark& mark) { return mark.line + 1; }
  static std::int32_t Column(const YAML::Mark& mark) { return mark.column + 1; }
  [[noreturn]] static void Refuse(const YAML::Mark& mark, std::string_view why) {
    throw RefusedYaml{InvalidInput("{}", why), mark};
  }
  static void Check(const YAML::Mark& mark, Status status) {
    if (!status.ok()) throw RefusedYaml{std::move(status), mark};
  }
  static void CheckAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) Refuse(mark, "anchors (&name) are not accepted; write the value out");
  }
  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") Refuse(mark, "tags (!name) are not accepted");
  }
  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    CheckAnchor(mark, anchor);
    CheckTag(mark, tag);
    if (builder_.expects_key())
      Refuse(mark, "a key must be a plain text; is a bracket not closed?");
    Check(mark, builder_.Open(kind, Line(mark), Column(mark)));
  }

  TreeBuilder builder_;
};

Status At(const std::string& name, const YAML::Mark& mark, std::string_view why) {
  if (mark.is_null()) return InvalidInput("{}: {}", Printable(name, 400), why);
  return InvalidInput("{}:{}:{}: {}", Printable(name, 400), mark.line + 1, mark.column + 1, why);
}

// Whether a tab stands before the first word of that line, from 0.
bool TabIndents(std::string_view text, int line) {
  for (; line > 0 && text.find('\n') != std::string_view::npos; --line) {
    text.remove_prefix(text.find('\n') + 1);
  }
  const std::size_t word = text.find_first_not_of(" \t");
  return text.substr(0, word).find('\t') != std::string_view::npos;
}

}  // namespace

Result<Document> ParseYaml(std::string_view text, const std::string& name, const Limits& limits) {
  ORRERY_RETURN_IF_ERROR(CheckText(text, name, limits));
  Document document;
  document.sources.push_back(name);
  YamlHandler handler(limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(handler)) {
      document.root = handler.TakeRoot();
      YamlHandler second(limits);
      if (parser.HandleNextDocument(second)) {
        return InvalidInput("{}: holds several documents (---); keep one", Printable(name, 400));
      }
    }
  } catch (const RefusedYaml& refused) {
    return At(name, refused.mark, refused.status.message());
  } catch (const YAML::Exception& error) {
    return At(
        name, error.mark,
        fmt::format("this is not YAML: {}{}", Printable(error.msg),
                    TabIndents(text, error.mark.line) ? "; indent with blanks, not tabs" : ""));
  }
  return document;
}

}  // namespace orrery::formats
