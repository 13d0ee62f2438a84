#include "orrery/formats/tree.h"
#include "orrery/formats/section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/formats/section.h"
#include "orrery/formats/toml.h"
#include "orrery/formats/write_yaml.h"

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;

std::string YamlError(std::string_view text) {
  return ParseYaml(text, "job.yaml").status().message();
}
std::string JsonError(std::string_view text) {
  return ParseJson(text, "job.json").status().message();
}

TEST(Tree, YamlKeepsPlacesAndText) {
  Result<Document> document = ParseYaml("a: 1\nb:\n  c: [x, '2']\n  d:\n", "job.yaml");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const Node& root = document->root;
  EXPECT_EQ(root.Find("a")->text, "1");
  const Node* c = root.Find("b")->Find("c");
  ASSERT_EQ(c->items.size(), 2u);
  EXPECT_FALSE(c->items[0].quoted);
  EXPECT_TRUE(c->items[1].quoted);
  EXPECT_EQ(document->Where(c->items[1]), "job.yaml:3:10");
  EXPECT_EQ(root.Find("b")->Find("d")->kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("nothing"), nullptr);
}

// Words that YAML takes for something else stay in quotes; what is written once is written again.
TEST(Tree, WrittenYamlReadsBack) {
  const char* const json =
      R"j({"a": "x", "no": "yes", "n": 1.5, "t": "1e3", "q": "say \"hi\", then \n", "none": null,
"list": [1, "b c", []], "empty": {}, "maps": [{"k": 1, "m": {"z": "w"}}, {"k": 2}], "odd": [{}, 1],
"texts": ["One.", "Two: 2."]})j";
  Result<Document> document = ParseJson(json, "job.json");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const std::string yaml = WriteYaml(document->root);
  Result<Document> again = ParseYaml(yaml, "job.yaml");
  ASSERT_TRUE(again.ok()) << again.status().message() << yaml;
  EXPECT_EQ(WriteYaml(again->root), yaml);
  EXPECT_EQ(
      yaml,
      "a: x\n\"no\": \"yes\"\nn: 1.5\nt: \"1e3\"\nq: \"say \\\"hi\\\", then \\n\"\nnone: null\n"
      "list: [1, \"b c\", []]\nempty: {}\nmaps:\n  - k: 1\n    m:\n      z: w\n  - k: 2\n"
      "odd: [{}, 1]\ntexts:\n  - One.\n  - \"Two: 2.\"\n");
}

// A text "Null" came back as no value, one with a control character not at all.
TEST(Tree, WrittenTextsStayTexts) {
  Result<Document> document = ParseJson(R"({"a": "Null", "b": "x\u0001\r\u007f"})", "job.json");
  ASSERT_TRUE(document.ok()) << document.status().message();
  Result<Document> again = ParseYaml(WriteYaml(document->root), "job.yaml");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->root.Find("a")->text, "Null");
  EXPECT_EQ(again->root.Find("b")->text, "x\x01\r\x7f");
}

TEST(Tree, JsonKeepsLines) {
  Result<Document> document =
      ParseJson("{\n \"a\": 12,\n \"b\": {\"c\": [true, 1.50, \"x\"]}\n}\n", "job.json");
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document->Where(*document->root.Find("a")), "job.json:2");
  const Node* c = document->root.Find("b")->Find("c");
  EXPECT_EQ(c->items[1].text, "1.50");
  EXPECT_EQ(document->Where(c->items[2]), "job.json:3");
}

TEST(Tree, TomlKeepsPlacesAndOrder) {
  Result<Document> document = ParseToml(
      "title = \"x\"\n[b]\nz = 1_000 # note\na = [true, 'no']\n[a.c]\nd = 2.5\n", "t.toml");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const Node& root = document->root;
  ASSERT_EQ(root.fields.size(), 3u);
  EXPECT_EQ(root.fields[1].key, "b");
  EXPECT_EQ(root.fields[1].value.fields[0].key, "z");
  EXPECT_EQ(root.Find("b")->Find("z")->text, "1000");
  EXPECT_EQ(document->Where(*root.Find("b")->Find("z")), "t.toml:3:5");
  EXPECT_TRUE(root.Find("b")->Find("a")->items[1].quoted);
  EXPECT_EQ(root.Find("a")->Find("c")->Find("d")->text, "2.5");
}

TEST(Tree, TomlErrorsHaveTheirPlace) {
  const auto error = [](std::string_view text) {
    return ParseToml(text, "t.toml").status().message();
  };
  EXPECT_THAT(error("a = 1\na = 2\n"), HasSubstr("t.toml:2:"));
  EXPECT_THAT(error("a = \n"), HasSubstr("t.toml:1:"));
  EXPECT_EQ(error("a = 1979-05-27\n"), "t.toml:1:5: dates are not accepted; put it in quotes");
  EXPECT_EQ(error("a = " + std::string(100, '[') + std::string(100, ']')),
            "t.toml:1:68: nested more than 64 deep; flatten it");
  EXPECT_THAT(error("a = " + std::string(100000, '[')), HasSubstr("t.toml:1:"));
  EXPECT_THAT(error("a = 1\nb\xEF\xBB\x9A = 2\n"),
              HasSubstr("t.toml:2:2: a letter beyond ASCII outside texts and comments"));
  EXPECT_THAT(error("# \u00e9 \"\n'a' = \"#\"\n\u0436 = 1\n"),
              HasSubstr("t.toml:3:1: a letter beyond"));
  EXPECT_THAT(error("a = \"\"\"\\\n \u0436\"\"\"\n"), HasSubstr("t.toml:2:2: a letter beyond"));
  EXPECT_EQ(ParseToml("\xEF\xBB\xBF# \u0436'\na = '\xEF\xAC\xA5\\' # \"\nb = \"\"\"\u0436 \\\" "
                      "\"\u0436\"\"\"\n\"\u0436\" = 1\n",
                      "t.toml")
                .status()
                .message(),
            "");
}

TEST(Tree, TabsAreNamed) {
  EXPECT_EQ(YamlError("a:\n  b: 1\n\tc: 2\n"),
            "job.yaml:3:1: this is not YAML: illegal tab when looking for indentation; indent with "
            "blanks, not tabs");
  EXPECT_EQ(YamlError("a: 1\n b: 2\n").find("tabs"), std::string::npos);
}

TEST(Tree, RefusesAliasBombs) {
  EXPECT_EQ(YamlError("a: &x [1, 2]\nb: [*x, *x]\n"),
            "job.yaml:1:4: anchors (&name) are not accepted; write the value out");
  EXPECT_THAT(YamlError("a: *x\n"), HasSubstr("job.yaml:1:"));
  EXPECT_THAT(YamlError("<<: {a: 1}\n"), HasSubstr("merge keys"));
}

TEST(Tree, RefusesDepth) {
  EXPECT_EQ(YamlError("a: " + std::string(100, '[') + std::string(100, ']')),
            "job.yaml:1:67: nested more than 64 deep; flatten it");
  EXPECT_EQ(JsonError(std::string(100000, '[')),
            "job.json:1: nested more than 64 deep; flatten it");
  EXPECT_THAT(YamlError("a: " + std::string(5000, '[')), HasSubstr("job.yaml:1:"));
  EXPECT_THAT(JsonError(std::string(60, '[')), HasSubstr("cut short"));
}

TEST(Tree, RefusesDepthOfSettings) {
  Result<Document> document = ParseYaml("a: 1\n", "job.yaml");
  ASSERT_TRUE(document.ok());
  std::string path;
  for (int i = 0; i < 64; ++i) path += "a.";
  EXPECT_THAT(ApplySet(path + "b=1", &*document).message(),
              HasSubstr("more than 64 keys in one another"));
}

TEST(Tree, RefusesKeysGivenTwice) {
  EXPECT_EQ(YamlError("a: 1\nb: 2\na: 3\n"),
            "job.yaml:3:1: the key 'a' stands here twice; keep one");
  EXPECT_EQ(JsonError("{\"a\": 1,\n \"a\": 2}"),
            "job.json:2: the key 'a' stands here twice; keep one");
}

TEST(Tree, RefusesForeignText) {
  EXPECT_EQ(YamlError("a: \xff\n"), "job.yaml:1:4: byte 0xff is not UTF-8; save the file as UTF-8");
  EXPECT_EQ(YamlError(std::string_view("a: \0b", 5)),
            "job.yaml:1:4: control character 0x00; is this a text file?");
  EXPECT_EQ(YamlError("a: !!python/object x\n"), "job.yaml:1:4: tags (!name) are not accepted");
  EXPECT_EQ(YamlError("a: 1\n---\nb: 2\n"), "job.yaml: holds several documents (---); keep one");
  EXPECT_THAT(YamlError("a: [1, 2\n"), HasSubstr("this is not YAML"));
  EXPECT_EQ(JsonError("{\"a\": 1e999}"), "job.json:1:11: the number is out of range");
  EXPECT_EQ(JsonError("{\"a\" 1}"), "job.json:1:6: this is not JSON");
  EXPECT_EQ(JsonError("{\"a\": NaN}"), "job.json:1:7: this is not JSON");
}

TEST(Tree, RefusesTooMuch) {
  std::string list = "[";
  for (int i = 0; i < 100'001; ++i) list += "1,";
  EXPECT_THAT(JsonError(list + "1]"), HasSubstr("more than 100,000 values"));
  EXPECT_THAT(YamlError(std::string(2 << 20, 'x')), HasSubstr("larger than 1.0 MiB"));
}

}  // namespace
}  // namespace orrery::formats
