package outboxdb

import (
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Row is an outbox row: the envelope plus the state of its delivery.
type Row struct {
	event.Envelope
	Lane       int16
	RetryCount int // refusals so far
	Crashes    int // projectors that died over it so far
	CreatedAt  time.Time

	// Waits says that NotBefore lies ahead. Expired says that ExpiresAt has passed. Both are by the clock of the
	// database at the time of the read.
	Waits, Expired bool
	// Key is the ordering key as stored, "" for an unordered row.
	Key string
	// Cut says that the row, and all later rows of its lane, did not fit into the bound of the fetch. It has no
	// payload.
	Cut bool

	// Size is the size of the payload in bytes. It is set only in the middle of a fetch, and 0 otherwise.
	Size int

	encoded string // the metadata of an event that is stored
}

// Refused is the entry of the metadata of a row that no valid event could be made of: why. Writers who may not fail store such a row all the same (the
// parameter refused of oncebox_add), because later events of its key must not pass it. The relay gives it up in its turn.
const Refused = "oncebox.refused"

// Refusal returns why the row must not be published; "": it may be.
func (r *Row) Refusal() string { return r.Metadata[Refused] }

// Fingerprint names the failures at the relay of rows with this topic and type whose errors have the same cause as the reason. It is "" if there is no
// reason.
func (r *Row) Fingerprint(reason string) string {
	return cause.Place{Topic: r.Topic, Type: r.Type}.Fingerprint(pgsql.CleanText(reason))
}

// RowColumns lists the columns that ScanRow takes, from a relation with the columns of "outbox". RowEnd follows the
// payload, or the expression in its place.
const (
	RowColumns = `{columns}` + RowEnd
	RowEnd     = `,
	coalesce(not_before > clock_timestamp(), false), coalesce(expires_at <= clock_timestamp(), false)`
)

// ScanRow reads the columns of RowColumns into r, and the columns behind them into more.
func ScanRow(scan pgsql.Scan, r *Row, more ...any) error {
	dest := make([]any, 0, len(columns)+2+len(more))
	for i := range columns {
		dest = append(dest, columns[i].target(r))
	}
	dest = append(append(dest, &r.Waits, &r.Expired), more...)
	err := scan(dest...)
	r.Delivery.OrderingKey = envelope.GivenKey(r.Key, r.AggregateID, r.ID)
	return err
}

// ScanRows reads rows of RowColumns.
func ScanRows(rows *pgsql.Rows) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error { return ScanRow(scan, r) })
}

// ScanSized reads rows of RowColumns and the size of the payload. The columns behind that are read into the result of
// more.
func ScanSized(rows *pgsql.Rows, more func(*Row) []any) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error {
		return ScanRow(scan, r, append([]any{&r.Size}, more(r)...)...)
	})
}

// RowID names a row within the store.
type RowID struct {
	Lane int16
	Seq  int64
}

// IsTimed reports whether the row may be cancelled until its time has come: a delayed row without order.
func (r *Row) IsTimed() bool { return r.Key == "" && !r.Delivery.NotBefore.IsZero() }
