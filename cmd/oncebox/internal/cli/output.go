package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Document prints v as one indented JSON document. It does not escape <, > and &, because errors are read
// by people too.
func (s *Session) Document(v any) error {
	enc := json.NewEncoder(s.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Acted is the JSON output of a command that changes one thing. Scripts use the names, so they never change.
type Acted struct {
	Action   string `json:"action"`
	ID       string `json:"id"`
	Consumer string `json:"consumer,omitempty"`
	Step     string `json:"step,omitempty"`
}

// Table prints a header and rows, in columns.
func (s *Session) Table(header []string, rows [][]string) error {
	return Columns(s.Out, append([][]string{header}, rows...))
}

// Pairs prints names with their values, one pair to a line. It leaves out pairs with an empty value, so
// callers may list all fields.
func (s *Session) Pairs(pairs ...string) error {
	var rows [][]string
	for n := 0; n+1 < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			rows = append(rows, []string{pairs[n], pairs[n+1]})
		}
	}
	return Columns(s.Out, rows)
}

// Columns prints rows in columns.
func Columns(to io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		shown := make([]string, len(row))
		for n, text := range row {
			shown[n] = Printable(text)
			// Empty cells at the end are cut, so that no line ends in blanks.
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(shown, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Printable removes characters that would move the cursor, change colours or break a column. Errors and identifiers may
// contain any text, also an attacker's.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Short cuts a text to the width of a column, counted in characters: a cut in the middle of one would print rubbish.
func Short(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Several returns a number with its noun, in singular or plural.
func Several[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + more
}

// Moment formats a time to the second, in a form that the flags accept.
func Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// UpTo formats a count that stops at bound: then it has a plus.
func UpTo(n, bound int64) string {
	if n >= bound {
		return strconv.FormatInt(bound, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}

// Age formats a number of seconds for people.
func Age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + " days"
	}
}

// Number formats n, and is empty for 0.
func Number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TimeOf returns nil for the zero time, so that JSON leaves it out.
func TimeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// At formats a time to the second, "" for nil.
func At(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Moment(*t)
}

// AskedBy names the sender of a request: the service's name for the caller, and the beginning of the principal's hash.
func AskedBy(caller, principal string) string {
	if principal != "" {
		principal = "principal " + principal
	}
	return Join(caller, principal)
}

// Join joins the parts that are not empty with blanks.
func Join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// Most is how many dead letters with one id are read at once, when a command is about all of them.
const Most = 1000
