# orrery_data(TARGET FILE...): each table data/FILE becomes orrery_data_NAME.inc, its lines as raw string
# literals with commas between, which the target's code includes in an array: compilers bound one
# literal's length. NAME is the file's path without its suffix, '/' as '_'. A generated file is
# rewritten only where its content changes.
function(orrery_data TARGET)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
  foreach(file ${ARGN})
    set(path ${PROJECT_SOURCE_DIR}/data/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(REGEX REPLACE "\n$" "" text "${text}")
    string(REPLACE "\n" ")orrery\",\nR\"orrery(" text "${text}")
    string(REGEX REPLACE "\\.[a-z]+$" "" name ${file})
    string(REPLACE "/" "_" name ${name})
    file(CONFIGURE OUTPUT ${generated}/orrery_data_${name}.inc CONTENT "R\"orrery(@text@)orrery\"\n" @ONLY)
  endforeach()
  target_include_directories(${TARGET} PRIVATE ${generated})
endfunction()
