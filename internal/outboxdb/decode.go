package outboxdb

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
)

// DecodeRows reads the same rows as ScanSized, but from the binary format of the protocol. more reads the columns
// behind those of the row. It is for the fetch of the relay: a third of the time for a row was spent on carrying its
// values one by one through the interfaces of database/sql.
func DecodeRows(rows pgx.Rows, most int, more func(*Decoder, *Row)) ([]Row, error) {
	defer rows.Close()
	d := Decoder{words: map[string]string{}}
	var out []Row
	for rows.Next() {
		if len(out) == cap(out) {
			// Most fetches bring a few rows, some bring as many as they may. Room for all would be most of the
			// cost of a small fetch.
			out = slices.Grow(out, max(min(3*len(out), most-len(out)), 16))
		}
		out = append(out, Row{})
		r := &out[len(out)-1]
		err := d.row(rows.RawValues(), r)
		if err == nil {
			more(&d, r)
			err = d.err
		}
		if err != nil {
			return nil, err
		}
	}
	return out, rows.Err()
}

// Decoder takes the values of a row apart, from left to right. The bytes belong to the connection and are overwritten
// by the next row, so every value that is kept is copied.
type Decoder struct {
	values [][]byte
	err    error
	zeros  [16]byte
	words  map[string]string // values that come again and again: topics, types, tenants
	texts  []ownText         // of this row
}

// ownText is a text that no other row shares.
type ownText struct {
	to    *string
	bytes []byte
}

// row reads the columns of RowColumns, and the size of the payload.
func (d *Decoder) row(values [][]byte, r *Row) error {
	d.values, d.err, d.texts = values, nil, d.texts[:0]
	for i := range columns {
		columns[i].decode(d, r)
	}
	r.Waits, r.Expired = d.Bool(), d.Bool()
	r.Size = int(d.int32())
	if d.err != nil {
		return fmt.Errorf("outbox: row %d: %w", r.Sequence, d.err)
	}
	d.keepTexts()
	r.Delivery.OrderingKey = envelope.GivenKey(r.Key, r.AggregateID, r.ID)
	return nil
}

// keepTexts copies the texts of the row, with one allocation for all.
func (d *Decoder) keepTexts() {
	n := 0
	for _, t := range d.texts {
		n += len(t.bytes)
	}
	var all strings.Builder
	all.Grow(n)
	for _, t := range d.texts {
		all.Write(t.bytes)
	}
	rest := all.String()
	for _, t := range d.texts {
		*t.to, rest = rest[:len(t.bytes)], rest[len(t.bytes):]
	}
}

// readMetadata takes any text, because a row that another program wrote must not fail the fetch of all lanes. A value
// that is not a string is returned as its JSON. A text that is not a JSON object is returned as a whole.
func readMetadata(text []byte) event.Metadata {
	if flat := flatMetadata(string(text)); flat != nil {
		return flat
	}
	var md event.Metadata
	if json.Unmarshal(text, &md) == nil {
		return md
	}
	var mixed map[string]json.RawMessage
	if json.Unmarshal(text, &mixed) != nil {
		return event.Metadata{"event_metadata": string(text)}
	}
	md = event.Metadata{}
	for key, value := range mixed {
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		md[key] = s
	}
	return md
}

// flatMetadata reads an object of strings as encoding/json writes it, if nothing in it is escaped: nearly all metadata.
// A string without a backslash ends at the next quote. It returns nil if it cannot say.
func flatMetadata(text string) event.Metadata {
	md := event.Metadata{}
	rest, ok := strings.CutPrefix(text, "{")
	if !ok || strings.Contains(text, `\`) {
		return nil
	}
	for first := true; rest != "}"; first = false {
		if !first {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil
			}
		}
		key, after, isPair := strings.Cut(strings.TrimPrefix(rest, `"`), `":"`)
		value, next, isClosed := strings.Cut(after, `"`)
		if rest == "" || rest[0] != '"' || !isPair || !isClosed || strings.Contains(key, `"`) {
			return nil
		}
		md[key] = value
		rest = next
	}
	return md
}

// next returns the next value, nil for NULL.
func (d *Decoder) next() []byte {
	if len(d.values) == 0 {
		d.err = errors.New("the server's answer has fewer columns than the statement asks for")
		return nil
	}
	v := d.values[0]
	d.values = d.values[1:]
	return v
}

// fixed returns the next value, which has n bytes. NULL is all zero.
func (d *Decoder) fixed(n int) []byte {
	v := d.next()
	if v != nil && len(v) != n {
		d.err = fmt.Errorf("a value of %d bytes where %d were expected", len(v), n)
	}
	if v == nil || d.err != nil {
		return d.zeros[:n]
	}
	return v
}

func (d *Decoder) Int64() int64 { return int64(binary.BigEndian.Uint64(d.fixed(8))) } //nolint:gosec // two's complement
func (d *Decoder) int32() int32 { return int32(binary.BigEndian.Uint32(d.fixed(4))) } //nolint:gosec // two's complement
func (d *Decoder) int16() int16 { return int16(binary.BigEndian.Uint16(d.fixed(2))) } //nolint:gosec // two's complement
func (d *Decoder) Bool() bool   { return d.fixed(1)[0] != 0 }

func (d *Decoder) bigint(to *int64)   { *to = d.Int64() }
func (d *Decoder) smallint(to *int16) { *to = d.int16() }
func (d *Decoder) integer(to *int)    { *to = int(d.int32()) }
func (d *Decoder) count(to *int)      { *to = int(d.int16()) }
func (d *Decoder) bytes(to *[]byte)   { *to = append([]byte{}, d.next()...) }
func (d *Decoder) text(to *string)    { d.texts = append(d.texts, ownText{to, d.next()}) }

func (d *Decoder) id(to *string) {
	id, _ := uuid.FromBytes(d.fixed(16)) // it has 16
	*to = id.String()
}

// instant is the zero time for NULL.
func (d *Decoder) instant(to *time.Time) {
	if len(d.values) > 0 && d.values[0] == nil {
		d.next()
		*to = time.Time{}
		return
	}
	// PostgreSQL counts microseconds from 2000.
	const epoch = 946_684_800_000_000
	*to = time.UnixMicro(d.Int64() + epoch).UTC()
}

// word reads a string that all equal values share.
func (d *Decoder) word(to *string) {
	v := d.next()
	s, known := d.words[string(v)]
	if !known {
		s = string(v)
		d.words[s] = s
	}
	*to = s
}
