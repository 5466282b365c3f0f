package words

import (
	"fmt"
	"html/template"
	"reflect"
	"strconv"
	"strings"
)

// Group writes a number with a thin space after each three digits (ISO 80000-1). The space does not break at the end of a line.
func Group(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteRune('\u202f')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// groupAny is Group for the integer types that templates contain.
func groupAny(n any) string {
	switch n := n.(type) {
	case int:
		return Group(int64(n))
	case int64:
		return Group(n)
	default:
		return fmt.Sprint(n)
	}
}

// Counted returns a number with its noun, in singular or plural.
func Counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Group(n) + "\u00a0" + many
}

// UpTo formats a count that stops at bound: then it has a plus. Templates call it with int and int64, hence the reflection.
func UpTo(bound int, n any) string {
	all := reflect.ValueOf(n).Int()
	if all >= int64(bound) {
		return Group(all) + "+"
	}
	return Group(all)
}

// Positive formats a number, and is empty for 0 and less.
func Positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Shorten cuts a text to n characters, the ellipsis included. It counts runes, so a character is never cut in two.
func Shorten(n int, text string) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// maxCause is the length to which a cause is cut in a line, in characters.
const maxCause = 140

// Cause returns an error or a reason as a line shows it.
func Cause(text string) string { return Shorten(maxCause, text) }

// Upper makes the first letter a capital.
func Upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// breaks are the characters of a name after which a line may end.
const breaks = "._-/:|@"

// Name returns a name, such as a type or topic, as HTML that ends a line only between its parts. A browser would otherwise end it in the middle of a word.
func Name(name string) template.HTML {
	var out strings.Builder
	rest := name
	for rest != "" {
		end := strings.IndexAny(rest, breaks) + 1
		if end == 0 || end == len(rest) {
			break
		}
		out.WriteString(template.HTMLEscapeString(rest[:end]) + "<wbr>")
		rest = rest[end:]
	}
	return template.HTML(out.String() + template.HTMLEscapeString(rest)) //nolint:gosec // each part is escaped
}

// Funcs returns the functions for templates.
func Funcs() template.FuncMap {
	return template.FuncMap{
		"ago": Ago, "due": Due, "count": groupAny, "duration": Short, "later": Later, "stamp": Stamp, "clock": Clock, "machine": Machine, "field": Field,
		"shorten": Shorten, "upTo": UpTo, "name": Name,
	}
}
