#include "orrery/formats/xml.h"

#include <expat.h>

#include <memory>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

constexpr std::size_t kMaxAttributes = 256;

struct Reader {
  XML_Parser parser = nullptr;
  Limits limits;
  std::vector<XmlElement> open;  // the path from a nameless root down
  std::size_t values = 0;
  std::string problem;

  void Stop(std::string text) {
    if (problem.empty()) problem = std::move(text);
    XML_StopParser(parser, XML_FALSE);
  }
};

void Begin(void* data, const char* name, const char** attributes) {
  auto& reader = *static_cast<Reader*>(data);
  if (reader.open.size() > reader.limits.depth) {
    return reader.Stop(fmt::format("elements nest deeper than {}", reader.limits.depth));
  }
  XmlElement element;
  element.name = name;
  element.line = static_cast<int>(XML_GetCurrentLineNumber(reader.parser));
  for (; *attributes != nullptr; attributes += 2) {
    element.attributes.emplace_back(attributes[0], attributes[1]);
  }
  reader.values += 1 + element.attributes.size();
  if (element.attributes.size() > kMaxAttributes || reader.values > reader.limits.values) {
    return reader.Stop(fmt::format("more than {} elements and attributes", reader.limits.values));
  }
  reader.open.push_back(std::move(element));
}

void End(void* data, const char*) {
  auto& reader = *static_cast<Reader*>(data);
  if (reader.open.size() < 2) return;
  XmlElement element = std::move(reader.open.back());
  reader.open.pop_back();
  reader.open.back().children.push_back(std::move(element));
}

void Doctype(void* data, const char*, const char*, const char*, int) {
  static_cast<Reader*>(data)->Stop(
      "a document type declaration; remove it, nothing here needs one");
}

}  // namespace

const std::string* XmlElement::Find(std::string_view attribute) const {
  for (const auto& [key, value] : attributes) {
    if (key == attribute) return &value;
  }
  return nullptr;
}

Result<XmlElement> ParseXml(std::string_view text, const std::string& name, const Limits& limits) {
  if (text.size() > limits.bytes) {
    return InvalidInput("{}: {} bytes; at most {} are read", name, text.size(), limits.bytes);
  }
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate("UTF-8"), &XML_ParserFree);
  if (parser == nullptr) return ResourceError("{}: no memory for an XML parser", name);
  Reader reader{.parser = parser.get(), .limits = limits};
  reader.open.emplace_back();
  XML_SetUserData(parser.get(), &reader);
  XML_SetElementHandler(parser.get(), Begin, End);
  XML_SetStartDoctypeDeclHandler(parser.get(), Doctype);
  const XML_Status status =
      XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
  const auto line = XML_GetCurrentLineNumber(parser.get());
  if (!reader.problem.empty()) return InvalidInput("{}:{}: {}", name, line, reader.problem);
  if (status != XML_STATUS_OK) {
    return InvalidInput("{}:{}: {}; is this an XML file?", name, line,
                        Printable(XML_ErrorString(XML_GetErrorCode(parser.get()))));
  }
  return std::move(reader.open.front().children.front());
}

}  // namespace orrery::formats
