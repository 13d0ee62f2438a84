# orrery_stage(NAME DEPENDS a b LIBRARIES x y): one stage of the flow is one folder and one library.
# Every *.cc beside it is compiled in; every *_test.cc becomes part of the stage's test program.
# What a stage may include is written in layers.txt and held by tests/layers_test.py.

# The headers of libraries that most files read, once a target. Under clang alone: gcc 12 gains a seventh and
# then warns falsely of its own strings.
function(orrery_precompile TARGET)
  list(LENGTH ARGN files)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND files GREATER 3)
    get_target_property(links ${TARGET} LINK_LIBRARIES)
    target_precompile_headers(${TARGET} PRIVATE <algorithm> <array> <fmt/format.h> <functional> <map> <memory> <optional>
      <span> <string> <unordered_map> <variant> <vector>)
    if("GTest::gmock" IN_LIST links)
      target_precompile_headers(${TARGET} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    endif()
  endif()
endfunction()

# Where everything is built at once (CMAKE_UNITY_BUILD, which ./run and ./test set), the files of one folder
# are compiled as one, for less than half the CPU time. So names in anonymous namespaces differ within a folder.
function(orrery_fold TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD_MODE GROUP)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE -Wno-subobject-linkage)  # takes included .cc files for headers
  endif()
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${folder}")
  endforeach()
endfunction()

# orrery_test(NAME SOURCE...): a test program.
function(orrery_test NAME)
  add_executable(${NAME} ${ARGN})
  target_link_libraries(${NAME} PRIVATE GTest::gtest_main GTest::gmock)
  orrery_precompile(${NAME} ${ARGN})
  orrery_fold(${NAME} ${ARGN})
  # Only where it is used, so that ccache serves other checkouts, too.
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} uses REGEX ORRERY_SOURCE_DIR LIMIT_COUNT 1)
    if(uses)
      set_source_files_properties(${source} PROPERTIES
        COMPILE_DEFINITIONS ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
endfunction()

function(orrery_stage NAME)
  cmake_parse_arguments(STAGE "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM STAGE_DEPENDS PREPEND orrery_)
  if(sources)
    add_library(orrery_${NAME} STATIC ${sources})
    target_include_directories(orrery_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(orrery_${NAME} PUBLIC ${STAGE_DEPENDS} ${STAGE_LIBRARIES} fmt::fmt)
    orrery_precompile(orrery_${NAME} ${sources})
    orrery_fold(orrery_${NAME} ${sources})
  else()
    add_library(orrery_${NAME} INTERFACE)
    target_include_directories(orrery_${NAME} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(orrery_${NAME} INTERFACE ${STAGE_DEPENDS} ${STAGE_LIBRARIES} fmt::fmt)
  endif()
  if(ORRERY_TESTS AND tests)
    orrery_test(${NAME}_test ${tests})
    target_link_libraries(${NAME}_test PRIVATE orrery_${NAME})
    target_compile_options(${NAME}_test PRIVATE -O1)  # what is slow is in the library
    add_test(NAME ${NAME} COMMAND ${NAME}_test)
  endif()
endfunction()
