include_guard()

# The layer order, lowest first. A folder may depend only on folders to its left,
# and only on those it names in DEPS.
set(MSTAR_LAYERS
    base text tensor media graph kernels collectives resources checkpoint
    components engine models runtime server client cli)

# One static library and one test program per folder.
#   SRCS   sources of the library
#   DEPS   lower layers it uses; become part of its interface
#   LIBS   outside libraries, private
#   TESTS  sources of the test program
#   TEST_LIBS, TEST_DEPS  what only the tests need
function(mstar_library)
  cmake_parse_arguments(L "" "NAME" "SRCS;DEPS;LIBS;TESTS;TEST_LIBS;TEST_DEPS" ${ARGN})
  list(FIND MSTAR_LAYERS "${L_NAME}" own)
  if(own EQUAL -1)
    message(FATAL_ERROR "mstar_library: '${L_NAME}' is not in MSTAR_LAYERS")
  endif()

  add_library(mstar_${L_NAME} STATIC ${L_SRCS})
  add_library(mstar::${L_NAME} ALIAS mstar_${L_NAME})
  target_include_directories(mstar_${L_NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(mstar_${L_NAME} PRIVATE mstar_options ${L_LIBS})
  foreach(dep IN LISTS L_DEPS)
    list(FIND MSTAR_LAYERS "${dep}" pos)
    if(pos EQUAL -1 OR NOT pos LESS own)
      message(FATAL_ERROR "${L_NAME} may not depend on ${dep}: it is not a lower layer")
    endif()
    target_link_libraries(mstar_${L_NAME} PUBLIC mstar::${dep})
  endforeach()

  if(BUILD_TESTING AND L_TESTS)
    add_executable(${L_NAME}_test ${L_TESTS})
    target_compile_definitions(
      ${L_NAME}_test PRIVATE MSTAR_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_link_libraries(
      ${L_NAME}_test PRIVATE mstar_options mstar::${L_NAME} ${L_TEST_DEPS} GTest::gtest_main
                             ${L_TEST_LIBS})
    gtest_discover_tests(${L_NAME}_test PROPERTIES LABELS "${L_NAME}" DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
