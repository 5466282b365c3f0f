// Package plot draws numbers over time as inline SVG, without script: lines or bars, with axes, and with the numbers of each time for a pointer and
// for a reader who does not see the picture.
//
// # Guarantees
//
// What is not known is a gap: no line and no bar crosses it. A plot of the last hour has 60 columns, one of the last 24 hours 144, however many
// figures there are.
//
// Read first: plot.go:Plot, then course.go:Course.
package plot
