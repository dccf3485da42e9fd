// SPDX-License-Identifier: MIT
#include <cstring>

#include "cufile/api/driver.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{

// Of the open driver; otherwise the defaults with what the program has set.
Config Driver::config_now()
{
	const std::lock_guard guard(open_lock_);
	return state_.engine() ? state_.engine()->config : settings_.over_defaults();
}

CUfileError_t Driver::set_while_closed(const std::function<void(Settings &)> &apply)
{
	const std::lock_guard guard(open_lock_);
	if (state_.engine())
		return error(CU_FILE_DRIVER_ALREADY_OPEN);
	apply(settings_);
	return success();
}

CUfileError_t Driver::get(CUFileSizeTConfigParameter_t param, size_t *value)
{
	if (static_cast<unsigned>(param) >= nr_sizes || !value)
		return error(CU_FILE_INVALID_VALUE);
	*value = config_now().size(param);
	return success();
}

CUfileError_t Driver::get(CUFileBoolConfigParameter_t param, bool *value)
{
	if (static_cast<unsigned>(param) >= nr_bools || !value)
		return error(CU_FILE_INVALID_VALUE);
	*value = config_now().flag(param);
	return success();
}

CUfileError_t Driver::get(CUFileStringConfigParameter_t param, char *text, int len)
{
	if (static_cast<unsigned>(param) >= nr_strings || !text || len <= 0)
		return error(CU_FILE_INVALID_VALUE);
	std::string value = config_now().strings[param];
	// As the original: for the path of the log it reports whether it is set, for others an empty string.
	if (param == CUFILE_PARAM_ENV_LOGFILE_PATH && value.empty()) {
		const auto named = deps_.system.variable("CUFILE_LOGFILE_PATH");
		if (!named)
			return error(CU_FILE_INVALID_VALUE);
		value = *named;
	}
	if (value.size() >= static_cast<size_t>(len))
		return error(CU_FILE_INVALID_VALUE);
	std::memcpy(text, value.c_str(), value.size() + 1);
	return success();
}

CUfileError_t Driver::get_slabs(Pool pool, size_t *sizes, size_t *counts, int len)
{
	if (!sizes || !counts || len <= 0)
		return error(CU_FILE_INVALID_VALUE);
	const Slabs slabs = config_now().slabs[pool];
	if (static_cast<size_t>(len) < slabs.count.size())
		return error(CU_FILE_INVALID_VALUE);
	for (size_t i = 0; i < static_cast<size_t>(len); i++) {
		sizes[i] = i < slabs.size_kb.size() ? slabs.size_kb[i] : 0;
		counts[i] = i < slabs.count.size() ? slabs.count[i] : 0;
	}
	return success();
}

CUfileError_t Driver::set(CUFileSizeTConfigParameter_t param, size_t value)
{
	const Range range = size_range(param);
	if (static_cast<unsigned>(param) >= nr_sizes || value < range.min || value > range.max)
		return error(CU_FILE_INVALID_VALUE);
	return set_while_closed([&](Settings &settings) { settings.sizes[param] = value; });
}

CUfileError_t Driver::set(CUFileBoolConfigParameter_t param, bool value)
{
	if (static_cast<unsigned>(param) >= nr_bools)
		return error(CU_FILE_INVALID_VALUE);
	return set_while_closed([&](Settings &settings) { settings.bools[param] = value; });
}

CUfileError_t Driver::set(CUFileStringConfigParameter_t param, const char *text)
{
	if (static_cast<unsigned>(param) >= nr_strings || !text)
		return error(CU_FILE_INVALID_VALUE);
	return set_while_closed([&](Settings &settings) { settings.strings[param] = text; });
}

CUfileError_t Driver::set_slabs(Pool pool, const size_t *sizes, const size_t *counts, int len)
{
	if (!sizes || !counts || len <= 0 || static_cast<size_t>(len) > max_slabs)
		return error(CU_FILE_INVALID_VALUE);
	const auto n = static_cast<size_t>(len);
	for (size_t i = 0; i < n; i++)
		if (!sizes[i] || sizes[i] > UINT32_MAX || counts[i] > UINT32_MAX)
			return error(CU_FILE_INVALID_VALUE);
	return set_while_closed([&](Settings &settings) {
		settings.slabs[pool] = Slabs{{sizes, sizes + n}, {counts, counts + n}};
	});
}

} // namespace cufile
