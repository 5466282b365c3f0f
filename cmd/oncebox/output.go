package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// document prints a value as one JSON document.
func (s *session) document(v any) error {
	enc := json.NewEncoder(s.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// acted is what a command that changes one thing prints as JSON. The names stay.
type acted struct {
	Action   string `json:"action"`
	ID       string `json:"id"`
	Consumer string `json:"consumer,omitempty"`
	Step     string `json:"step,omitempty"`
}

// table prints rows below a header, in columns.
func (s *session) table(header []string, rows [][]string) error {
	return columns(s.out, append([][]string{header}, rows...))
}

// pairs prints names and values, one pair to a line. Pairs without a value are left out.
func (s *session) pairs(pairs ...string) error {
	var rows [][]string
	for n := 0; n+1 < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			rows = append(rows, []string{pairs[n], pairs[n+1]})
		}
	}
	return columns(s.out, rows)
}

func columns(to io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		shown := make([]string, len(row))
		for n, text := range row {
			shown[n] = printable(text)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(shown, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printable is a text without what would move the cursor, change colours or break a column: errors and identifiers may be any text.
func printable(text string) string {
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

// short cuts a text for a column.
func short(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// several is a number of things, with the words for one of them and for more.
func several[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + more
}

// moment is a time to the second, as the flags take it.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
