package console

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// sample is how many dead letters of each box are read to group their errors: the latest.
	sample = 500
	// mostKinds is how many kinds are shown.
	mostKinds = 8
	// kindLength is how long the text of a kind is, in characters.
	kindLength = 140
)

// kind is a group of errors that say the same apart from numbers, ids and what is quoted.
type kind struct {
	Text   string
	Box    string
	Where  string
	Type   string // of the latest one
	Count  int
	Latest time.Time
	Plot   *plot
	// Link is the list of dead letters with the longest part of the text that all of them have.
	Link string
}

// variable matches what differs between errors of one kind.
var variable = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[^"]*"|'[^']*'|0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*`)

// kindOf is the text that errors of one kind share.
func kindOf(text string) string {
	return shorten(kindLength, strings.Join(strings.Fields(variable.ReplaceAllString(text, "…")), " "))
}

// fixed is the longest part of an error that does not differ within its kind: what a filter can look for.
func fixed(text string) string {
	longest := ""
	for _, part := range variable.Split(text, -1) {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return shorten(kindLength, longest)
}

// failure is one error of a dead letter of either box.
type failure struct {
	box, consumer, kind, text string
	at                        time.Time
}

// kindsOf puts errors of one kind and place together, the most frequent first.
func kindsOf(now time.Time, all []failure) []*kind {
	found := map[string]*kind{}
	var list []*kind
	for _, f := range all {
		text := kindOf(f.text)
		key := f.box + "\x00" + f.consumer + "\x00" + text
		k := found[key]
		if k == nil {
			s := selection{Box: f.box, Consumer: f.consumer, Text: strings.TrimSuffix(fixed(f.text), "…")}
			k = &kind{Text: text, Box: f.box, Where: "relay", Type: f.kind, Latest: f.at, Plot: &plot{}, Link: "dead?" + s.Values().Encode()}
			if f.box == boxInbox {
				k.Where = "consumer " + f.consumer
			}
			found[key] = k
			list = append(list, k)
		}
		k.Count++
		k.Plot.add(now, f.at)
	}
	slices.SortStableFunc(list, func(a, b *kind) int { return cmp.Compare(b.Count, a.Count) })
	return list[:min(len(list), mostKinds)]
}

// readKinds reads and groups the latest errors.
func (c *Console) readKinds(v *visit) ([]*kind, error) {
	var all []failure
	if c.cfg.Outbox != nil {
		list, err := c.cfg.Outbox.DeadErrors(v.Context(), sample)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			all = append(all, failure{boxOutbox, "", d.Type, d.Error, d.DiedAt})
		}
	}
	if c.cfg.Inbox != nil {
		list, err := c.cfg.Inbox.DeadErrors(v.Context(), sample)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			all = append(all, failure{boxInbox, d.Consumer, d.Type, d.Error, d.DiedAt})
		}
	}
	return kindsOf(v.now, all), nil
}
