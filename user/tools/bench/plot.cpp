// SPDX-License-Identifier: MIT
//
// Plots a benchmark as SVG without external fonts, scripts or files. Two charts over the request size, with a line for
// each route, number of threads and depth.

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "tools/bench/bench.hpp"

namespace cli
{
namespace
{

constexpr double width = 420, height = 300, left = 70, top = 50, gap = 110;
constexpr int colours_known = 4;
constexpr const char *colours[colours_known] = {"#0072b2", "#d55e00", "#009e73", "#999999"}; // by route
constexpr const char *dashes[] = {"", "6 3", "2 3", "8 3 2 3"};

struct Line {
	std::string name;
	BenchRoute route;
	std::vector<const BenchRow *> rows;
};

std::string escaped(std::string_view text)
{
	std::string out;
	for (const char c : text)
		switch (c) {
		case '&':
			out += "&amp;";
			break;
		case '<':
			out += "&lt;";
			break;
		case '>':
			out += "&gt;";
			break;
		case '"':
			out += "&quot;";
			break;
		default:
			out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
		}
	return out;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text)
{
	return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
			   escaped(text));
}

// The next round number, for the end of an axis.
double round_number(double value)
{
	if (!(value > 0))
		return 1;
	const double unit = std::pow(10, std::floor(std::log10(value)));
	for (const double step : {1.0, 2.0, 5.0})
		if (value <= step * unit)
			return step * unit;
	return 10 * unit;
}

std::vector<Line> lines_of(const std::vector<BenchRow> &rows)
{
	std::vector<Line> lines;
	for (const BenchRow &row : rows) {
		if (row.failure || !row.ios)
			continue;
		const std::string name = fmt::format(
			"{}{}{}{}, {} thread{}, depth {}", row.job, row.job.empty() ? "" : ": ", route_name(row.route),
			row.write ? " write" : "", row.threads, row.threads == 1 ? "" : "s", row.depth);
		auto line = std::find_if(lines.begin(), lines.end(), [&](const Line &one) { return one.name == name; });
		if (line == lines.end())
			line = lines.insert(line, Line{name, row.route, {}});
		line->rows.push_back(&row);
	}
	for (Line &line : lines)
		std::sort(line.rows.begin(), line.rows.end(),
			  [](const BenchRow *a, const BenchRow *b) { return a->size < b->size; });
	return lines;
}

} // namespace

std::string plot(const std::vector<BenchRow> &rows, const std::string &remark)
{
	const std::vector<Line> lines = lines_of(rows);
	double first = 63, last = 0; // powers of two
	for (const Line &line : lines)
		for (const BenchRow *row : line.rows) {
			first = std::min(first, std::floor(std::log2(static_cast<double>(row->size))));
			last = std::max(last, std::ceil(std::log2(static_cast<double>(row->size))));
		}
	last = std::max(last, first + 1);
	const double legend = top + height + 60, total = legend + 18 * static_cast<double>(lines.size()) + 30,
		     across = left + 2 * width + gap + 20;
	std::string svg = fmt::format(
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
		across, total);
	struct Field {
		const char *title;
		double (BenchRow::*value)() const;
	};
	double x0 = left;
	for (const Field &field :
	     {Field{"MiB/s", &BenchRow::mib_per_second}, Field{"CPU seconds for 10^9 bytes", &BenchRow::cpu_per_gb}}) {
		double most = 0;
		for (const Line &line : lines)
			for (const BenchRow *row : line.rows)
				most = std::max(most, (row->*field.value)());
		most = round_number(most);
		auto x = [&](double size) { return x0 + (std::log2(size) - first) / (last - first) * width; };
		auto y = [&](double value) { return top + height - value / most * height; };
		svg += text_at(x0, top - 15, "start", field.title);
		for (int i = 0; i <= 4; i++) {
			const double value = most * i / 4;
			svg += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#ddd\"/>\n", x0, y(value),
					   width);
			svg += text_at(x0 - 6, y(value) + 4, "end", fmt::format("{:.4g}", value));
		}
		const double step = std::max(1.0, std::ceil((last - first) / 8));
		for (double power = first; power <= last && !lines.empty(); power += step)
			svg += text_at(x(std::exp2(power)), top + height + 18, "middle",
				       size_text(static_cast<uint64_t>(std::exp2(power))));
		for (size_t i = 0; i < lines.size(); i++) {
			const Line &line = lines[i];
			const char *const colour = colours[static_cast<size_t>(line.route) % colours_known];
			std::string points;
			for (const BenchRow *row : line.rows) {
				const double at = x(static_cast<double>(row->size)), value = y((row->*field.value)());
				points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", at, value);
				svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at,
						   value, colour);
			}
			svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
					   "stroke-dasharray=\"{}\"/>\n",
					   points, colour, dashes[i / colours_known % std::size(dashes)]);
		}
		x0 += width + gap;
	}
	for (size_t i = 0; i < lines.size(); i++) {
		const double y = legend + 18 * static_cast<double>(i);
		svg += fmt::format("<path d=\"M{:.1f} {:.1f}h30\" stroke=\"{}\" stroke-width=\"2\" "
				   "stroke-dasharray=\"{}\"/>\n",
				   left, y - 4, colours[static_cast<size_t>(lines[i].route) % colours_known],
				   dashes[i / colours_known % std::size(dashes)]);
		svg += text_at(left + 40, y, "start", lines[i].name);
	}
	svg += text_at(left, total - 8, "start", lines.empty() ? "no row succeeded" : remark);
	return svg + "</svg>\n";
}

} // namespace cli
