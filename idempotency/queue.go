package idempotency

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
)

var errNotSent = errors.New("idempotency: begin: the statements were not sent")

// Begun is what came of a [Store.QueueBegin].
type Begun struct {
	// Response is the stored answer, nil if the key is new.
	Response *Response
	// XID is the id of the transaction (pg_current_xact_id), "" unless the key is new.
	XID string
	// Err is one of those of [Store.Begin].
	Err error
}

// QueueBegin is [Store.Begin] as a part of b: it can share a round trip with BEGIN. The result is there when b was sent, and
// only then; an error of sending counts more.
func (s *Store) QueueBegin(b *pgx.Batch, key Key, fp Fingerprint, opts ...BeginOption) *Begun {
	result := &Begun{Err: errNotSent}
	var locked bool
	b.Queue(s.run.Text(lock), lockArgs(key, opts)...).QueryRow(func(row pgx.Row) error { return row.Scan(&locked, nil) })
	b.Queue(s.run.Text(lookupNew), key.hash[:]).Query(func(rows pgx.Rows) error {
		var found record
		for rows.Next() {
			if row := rows.RawValues(); row[0] == nil { // a new key: to read a row of NULLs costs as much as one of values
				result.XID = string(row[len(row)-1])
				continue
			}
			if err := rows.Scan(append(found.dest(), nil)...); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		result.Response, result.Err = s.begun(locked, &found, key, fp)
		return nil
	})
	return result
}

// QueueComplete is [Store.Complete] as a part of b: it can share a round trip with COMMIT. If somebody else completed the key in
// spite of the lock, it fails, and what is behind it in b is not executed: see [IsTaken].
func (s *Store) QueueComplete(b *pgx.Batch, key Key, fp Fingerprint, resp Response) error {
	args, err := s.completion(key, fp, resp)
	if err != nil {
		return err
	}
	b.Queue(s.run.Text(complete), args...)
	return nil
}

// codeTaken is the SQLSTATE of the function idempotency_taken: one of our own, in a class that PostgreSQL leaves to others.
const codeTaken = "OB001"

// IsTaken tells whether err is PostgreSQL's answer to the completion of a key that somebody else has completed meanwhile.
func IsTaken(err error) bool { return pgsql.Code(err) == codeTaken }
