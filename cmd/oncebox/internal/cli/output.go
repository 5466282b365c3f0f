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

// Document prints a value as one JSON document.
func (s *Session) Document(v any) error {
	enc := json.NewEncoder(s.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Acted is what a command that changes one thing prints as JSON. The names stay.
type Acted struct {
	Action   string `json:"action"`
	ID       string `json:"id"`
	Consumer string `json:"consumer,omitempty"`
	Step     string `json:"step,omitempty"`
}

// Table prints rows below a header, in columns.
func (s *Session) Table(header []string, rows [][]string) error {
	return Columns(s.Out, append([][]string{header}, rows...))
}

// Pairs prints names and values, one pair to a line. Pairs without a value are left out.
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
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(shown, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Printable is a text without what would move the cursor, change colours or break a column: errors and identifiers may be any text.
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

// Short cuts a text for a column.
func Short(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Several is a number of things, with the words for one of them and for more.
func Several[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + more
}

// Moment is a time to the second, as the flags take it.
func Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// UpTo is a number that was counted up to a bound.
func UpTo(n, bound int64) string {
	if n >= bound {
		return strconv.FormatInt(bound, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}

// Age is a number of seconds as people read it.
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

// Number is "" for 0.
func Number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TimeOf returns nil for the zero time, which JSON leaves out.
func TimeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// At is a time to the second, "" if there is none.
func At(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Moment(*t)
}

// AskedBy names who sent a request, by what the service calls him and by the beginning of his hash.
func AskedBy(caller, principal string) string {
	if principal != "" {
		principal = "principal " + principal
	}
	return Join(caller, principal)
}

// Join joins the parts that are not empty by blanks.
func Join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// Most is how many dead letters are read at once where all of them are meant: those with one id.
const Most = 1000
