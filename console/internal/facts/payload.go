package facts

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"
)

// MaxShown is how much of a payload a page shows, in bytes. The command line shows all of it.
const MaxShown = 256 << 10

// Payload is a payload as a page shows it.
type Payload struct {
	Text  string
	Bytes int
	Kind  string
	// Cut is true if only the beginning is shown.
	Cut bool
}

// PayloadOf indents JSON, and shows what is no text as hexadecimal digits.
func PayloadOf(data []byte) *Payload {
	const text = "text"
	p := &Payload{Bytes: len(data), Kind: text}
	var pretty bytes.Buffer
	switch {
	case len(data) <= MaxShown && json.Indent(&pretty, data, "", "  ") == nil:
		p.Kind, p.Text = "JSON", pretty.String()
	case utf8.Valid(data):
		p.Text = string(data[:min(len(data), MaxShown)])
	default:
		p.Kind, p.Text = "binary, as hexadecimal digits", hex.Dump(data[:min(len(data), MaxShown/8)])
		p.Cut = len(data) > MaxShown/8
	}
	p.Cut = p.Cut || p.Kind == text && len(data) > MaxShown
	return p
}
