package pgsql

import "strings"

// MaxText is the longest stored text for people, such as an error or a reason, in bytes.
const MaxText = 2 << 10

// CleanText makes any text storable. A NUL or bad UTF-8 in an error would fail the statement that records it. It returns at most [MaxText]
// bytes.
func CleanText(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	if len(text) <= MaxText {
		return text
	}
	return strings.ToValidUTF8(text[:MaxText], "") // the cut may be within a character
}
