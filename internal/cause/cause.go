// Package cause finds the text that errors with one cause share, and the fingerprint under which failures of that cause are stored. The log, the
// command line, the console and both boxes group errors by it.
//
// Read first: cause.go:Of, then fingerprint.go:Place.Fingerprint.
package cause

import (
	"regexp"
	"strings"
	"unicode"
)

const (
	// length is the number of characters of a cause; the rest is cut off.
	length = 140
	// looked is how many bytes of an error are read. An error may quote a whole payload.
	looked = 8 << 10
)

// variable matches parts that may differ between errors with the same cause. Stored fingerprints are made of the rest: a change gives every cause
// another fingerprint, and the notes of operators stay with the former ones.
var variable = regexp.MustCompile(strings.Join([]string{
	`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`, // a UUID
	`"(?:[^"\\]|\\.)*"`, `\B'[^']*'`, "`[^`]*`", // a quotation; the apostrophe of "can't" begins none
	`\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?`, // an IPv6 address and its port
	`0x[0-9a-fA-F]+`, `\b[0-9A-HJKMNP-TV-Z]{26}\b`, // an address in memory, a ULID
	`(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|h|m|s))+\b`, `\d+(?:[.:]\d+)*\b`, // a duration, a number, a time, an IPv4 address and its port
	`\b[0-9a-fA-F]*\d[0-9a-fA-F]*\b`, `\d+(?:[.:]\d+)*`, // a hash in hexadecimal digits, any other number
}, "|"))

// Of returns the text of an error with numbers, ids and quoted texts replaced by "…". Errors with the same
// cause have the same text then.
func Of(text string) string {
	text = text[:min(len(text), looked)]
	runes := []rune(strings.Join(strings.Fields(variable.ReplaceAllString(text, "…")), " "))
	if len(runes) > length {
		return string(runes[:length-1]) + "…"
	}
	return string(runes)
}

// Common returns the longest part of an error that is equal for all errors with its cause and that a person can type,
// to search for them. "" if there is none.
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
