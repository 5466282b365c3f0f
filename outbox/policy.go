package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ActionRetention is the action of the audit for [Store.SetRetention].
const ActionRetention = "retention"

// policy is what becomes of published rows. It belongs to the database and not to a process: of two processes that keep rows for
// different times, the one with the shorter time would drop what the other keeps, or archives.
type policy struct {
	retention time.Duration // as Config.Retention, but never 0
	archived  bool          // days are dropped by processes with Config.BeforeDrop only
}

const (
	// enterPolicy enters the settings of the first process. Of later ones it takes over that they archive, because what was
	// dropped without that is lost.
	enterPolicy = `
INSERT INTO {schema}.outbox_retention AS r (kept, archived) VALUES ($1::interval, $2)
ON CONFLICT (only_one) DO UPDATE SET archived = true WHERE excluded.archived AND NOT r.archived`

	askPolicy = `SELECT extract(epoch FROM kept)::float8, archived FROM {schema}.outbox_retention`

	setPolicy = `
WITH before AS (SELECT max(kept) AS kept, bool_or(archived) AS archived FROM {schema}.outbox_retention),
set AS (
	INSERT INTO {schema}.outbox_retention (kept, archived) VALUES ($1::interval, $2)
	ON CONFLICT (only_one) DO UPDATE SET kept = excluded.kept, archived = excluded.archived)
INSERT INTO {schema}.outbox_audit (actor, action, tenant_id, topic, event_type, reason)
SELECT $3, '` + ActionRetention + `', '', '', '', 'from ' || coalesce(kept::text, 'for ever') || coalesce(', archived: ' || archived, '') ||
	' to ' || coalesce($1::text, 'for ever') || ', archived: ' || $2 || ': ' || $4 FROM before`
)

// SetRetention makes [Config.Retention] of this store, and whether it has a [Config.BeforeDrop], the rule for the database. The
// first projector of a database does that by itself; later settings that differ change nothing until this is called. Other
// processes go by it after their next Config.CleanInterval at the latest. by must give a reason.
func (s *Store) SetRetention(ctx context.Context, by By) error {
	if err := (deed{action: ActionRetention, by: by}).validate(); err != nil {
		return fmt.Errorf("outbox: set the retention: %w", err)
	}
	_, err := s.adHoc().Exec(ctx, s.db, setPolicy, storedRetention(s.cfg.Retention), s.cfg.BeforeDrop != nil, by.Actor, cleanText(by.Reason))
	if err == nil {
		_, err = s.policy(ctx)
	}
	return wrap("set the retention", err)
}

// policy asks for the policy of the database, and enters it if there is none. It warns, once for each policy, of settings of
// this process that do not count.
func (s *Store) policy(ctx context.Context) (policy, error) {
	p, err := s.askPolicy(ctx)
	if errors.Is(err, sql.ErrNoRows) || err == nil && s.cfg.BeforeDrop != nil && !p.archived {
		// Asked again in a statement of its own: what the insert waited for is not in its snapshot.
		if _, err = s.sql.Exec(ctx, s.db, enterPolicy, storedRetention(s.cfg.Retention), s.cfg.BeforeDrop != nil); err == nil {
			p, err = s.askPolicy(ctx)
		}
	}
	if err != nil {
		return p, wrap("ask for the retention", err)
	}
	if last := s.kept.Swap(&p); last == nil || *last != p {
		s.reportPolicy(ctx, p)
	}
	return p, nil
}

func (s *Store) askPolicy(ctx context.Context) (p policy, err error) {
	var seconds sql.NullFloat64
	if err := s.sql.QueryRow(ctx, s.db, askPolicy, nil, &seconds, &p.archived); err != nil {
		return p, err
	}
	switch {
	case !seconds.Valid:
		p.retention = KeepForever
	case seconds.Float64 == 0:
		p.retention = NoRetention
	default:
		p.retention = time.Duration(seconds.Float64) * time.Second
	}
	return p, nil
}

// storedRetention is a retention as the table has it: nothing, or NULL for ever.
func storedRetention(d time.Duration) *time.Duration {
	if d == KeepForever {
		return nil
	}
	if d == NoRetention {
		d = 0
	}
	return &d
}

func (s *Store) reportPolicy(ctx context.Context, p policy) {
	if s.ownRetention && s.cfg.Retention != p.retention {
		s.log.WarnContext(ctx, "oncebox: the database keeps published events for another time than Config.Retention says, and the database's "+
			"counts: change the setting, or call Store.SetRetention", "database", p.String(), "config", policy{retention: s.cfg.Retention}.String())
	}
	if p.archived && s.cfg.BeforeDrop == nil {
		s.log.InfoContext(ctx, "oncebox: published events are archived before they are dropped, which this process does not do: it drops none")
	}
}

func (p policy) String() string {
	switch p.retention {
	case KeepForever:
		return "for ever"
	case NoRetention:
		return "deleted on publish"
	default:
		return p.retention.String()
	}
}

// archives tells whether published rows are kept at all, as of the last look at the policy.
func (s *Store) archives() bool {
	if p := s.kept.Load(); p != nil {
		return p.retention != NoRetention
	}
	return s.cfg.Retention != NoRetention
}
