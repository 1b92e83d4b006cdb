// oneCCL's headers, without their warnings.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <oneapi/ccl.hpp>
#pragma GCC diagnostic pop
