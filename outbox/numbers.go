package outbox

import (
	"context"
	"errors"
	"time"
)

// ErrNumbersAgain means that outbox_seq gives numbers that rows had before, as after a restore without the sequences. Events with
// such numbers would be taken for published ones.
var ErrNumbersAgain = errors.New("outbox: the sequence outbox_seq is behind the numbers that lanes have published, or was: nothing is published. Set it with " +
	"SELECT setval('outbox_seq', (SELECT max(greatest(upto, sent)) + 1000 FROM outbox_cursor)), " +
	"setval('outbox_progress_n', (SELECT max(n) + 1000 FROM outbox_progress)), " +
	"and see docs/runbook.md for what was recorded since the restore")

const (
	// sequenceOf is another one on each server, and for each sequence. Only a copy that PostgreSQL makes of all its files has the same one, and
	// such a copy has the sequence as it was.
	sequenceOf = `(SELECT format('%s/%s', c.system_identifier, '{schema}.outbox_seq'::regclass::oid) FROM pg_control_system() c)`

	// numbersSeen is one row: whether a sequence is behind, and whether this is the sequence that all numbers were found to be of.
	numbersSeen = `(SELECT coalesce(max(greatest(x.upto, x.sent)) > coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0)
		OR max(x.n) > coalesce(pg_sequence_last_value('{schema}.outbox_progress_n'), 0), false) AS behind,
	(SELECT l.numbers_of IS NOT DISTINCT FROM ` + sequenceOf + ` FROM {schema}.outbox_layout l) AS known
	FROM {schema}.outbox_cursor x)`

	// hidden looks for a row that a position calls published although it was stored after the last position was. It reads what was stored since
	// the beginning of that day.
	hidden = `
SELECT EXISTS (SELECT FROM {schema}.outbox o JOIN {schema}.outbox_cursor c USING (lane)
	WHERE o.created_at > (SELECT max(at) + interval '1 second' FROM {schema}.outbox_progress) AND (o.seq <= c.sent OR o.seq <@ c.ahead))`

	doubtNumbers = `UPDATE {schema}.outbox_layout SET numbers_of = NULL WHERE numbers_of IS NOT NULL`
	trustNumbers = `UPDATE {schema}.outbox_layout SET numbers_of = ` + sequenceOf
)

// longestLook is for how long a copy is looked at before anything is published from it.
const longestLook = 10 * time.Minute

// checkNumbers returns [ErrNumbersAgain] if a sequence is behind the positions. Writers may bring it beyond them in time, and what they
// recorded before would never be published. So the finding is kept, and so it is that a database was copied: before the next
// publication that comes from it, all that was recorded since the last one is looked at.
func (s *Store) checkNumbers(ctx context.Context, behind, known bool) error {
	if behind {
		if _, err := s.sql.Exec(ctx, s.db, doubtNumbers); err != nil {
			return err
		}
		return ErrNumbersAgain
	}
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestLook)
	defer cancel()
	var again bool
	if err := s.adHoc().QueryRow(ctx, s.db, hidden, nil, &again); err != nil {
		return err
	}
	if again {
		return ErrNumbersAgain
	}
	_, err := s.sql.Exec(ctx, s.db, trustNumbers)
	return err
}
