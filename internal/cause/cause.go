// Package cause finds the text that errors with one cause share. The log, the command line and the console group errors by it.
package cause

import (
	"regexp"
	"strings"
	"unicode"
)

const (
	// length is how long a cause is, in characters.
	length = 140
	// looked is how much of an error is read, in bytes. An error may quote a whole payload.
	looked = 8 << 10
)

// variable matches the parts that differ between errors with one cause.
var variable = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[^"]*"|'[^']*'|0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*`)

// Of returns the text that errors with one cause share: numbers, ids and quoted texts are replaced by "…".
func Of(text string) string {
	text = text[:min(len(text), looked)]
	runes := []rune(strings.Join(strings.Fields(variable.ReplaceAllString(text, "…")), " "))
	if len(runes) > length {
		return string(runes[:length-1]) + "…"
	}
	return string(runes)
}

// Common returns the longest part of an error that does not differ within its cause and can be typed: what a filter for errors looks for. "": there
// is none.
func Common(text string) string {
	longest := ""
	for _, part := range variable.Split(text, -1) {
		for _, typed := range strings.FieldsFunc(part, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
			if typed = strings.TrimSpace(typed); len(typed) > len(longest) {
				longest = typed
			}
		}
	}
	if runes := []rune(longest); len(runes) >= length {
		return string(runes[:length-1])
	}
	return longest
}
