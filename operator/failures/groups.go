package failures

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ErrUnknown means that nothing has this fingerprint: no failure, and for a look no note either.
var ErrUnknown = errors.New("nothing that fails has this fingerprint")

const (
	said = `
SELECT fingerprint, consumer, topic, event_type, cause, note, noted_by, noted_at, archived_by, archived_at, archived_why, archived_upto
FROM {schema}.oncebox_failure WHERE fingerprint = ANY ($1::text[])`

	note = `
WITH said AS (
	INSERT INTO {schema}.oncebox_failure (fingerprint, consumer, topic, event_type, cause, note, noted_by, noted_at)
	VALUES ($1::text, $5::text, $6::text, $7::text, $8::text, $9::text, $3::text, clock_timestamp())
	ON CONFLICT (fingerprint) DO UPDATE SET note = excluded.note, noted_by = excluded.noted_by, noted_at = excluded.noted_at RETURNING fingerprint)
` + audited

	// archive takes nothing back that another operator has seen.
	archive = `
WITH said AS (
	INSERT INTO {schema}.oncebox_failure AS f (fingerprint, consumer, topic, event_type, cause, archived_by, archived_at, archived_why, archived_upto)
	VALUES ($1::text, $5::text, $6::text, $7::text, $8::text, $3::text, clock_timestamp(), $4::text, $9::timestamptz)
	ON CONFLICT (fingerprint) DO UPDATE SET archived_by = excluded.archived_by, archived_at = excluded.archived_at,
		archived_why = excluded.archived_why, archived_upto = greatest(f.archived_upto, excluded.archived_upto) RETURNING fingerprint)
` + audited

	unarchive = `
WITH said AS (
	UPDATE {schema}.oncebox_failure SET archived_by = '', archived_at = NULL, archived_why = '', archived_upto = NULL, cause = $8::text
	WHERE fingerprint = $1::text AND archived_at IS NOT NULL RETURNING fingerprint)
` + audited

	// audited adds the entry to the audit. Arguments: fingerprint, part, actor, reason, consumer, topic, type, cause, and what the statement itself needs.
	audited = `
INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, tenant_id, consumer, topic, event_type, fingerprint)
SELECT $2::text, $3::text, '%s', $4::text, '', $5::text, $6::text, $7::text, fingerprint FROM said`
)

// Groups are the groups of failures of a box. It is safe for concurrent use.
type Groups struct {
	part          operator.Part
	run           *pgsql.Runner
	db            func(context.Context) bun.IDB
	failing, dead Table
	act           Action
}

// Action treats all failures of a group, see [Groups.Act].
type Action func(ctx context.Context, action operator.Action, g *Group, by operator.By, bulk *operator.Bulk) (int64, error)

// New is for packages outbox and inbox: see outbox.Store.Failures and inbox.Inbox.Failures. run does not prepare its statements.
func New(part operator.Part, run *pgsql.Runner, db func(context.Context) bun.IDB, failing, dead Table, act Action) *Groups {
	return &Groups{part: part, run: run, db: db, failing: failing, dead: dead, act: act}
}

// Act treats a group: Retry tries the messages that fail at once, Replay and Discard are for its dead letters. It returns how many were treated, also
// beside an error. With bulk.DryRun it only counts them. Events that the broker refuses are tried again by themselves, so Retry treats none of them.
func (g *Groups) Act(ctx context.Context, action operator.Action, of *Group, by operator.By, bulk *operator.Bulk) (int64, error) {
	switch action {
	case operator.Retry, operator.Replay, operator.Discard:
		return g.act(ctx, action, of, by, bulk)
	default:
		return 0, g.wrap(string(action)+" failures", errors.New("the action is none of retry, replay and discard"))
	}
}

// List returns the groups, also archived groups. The group with the latest failure comes first.
func (g *Groups) List(ctx context.Context) ([]Group, error) {
	list, err := g.look(ctx, "")
	return list, g.wrap("list failures", err)
}

// Show returns one group. A group that has no failure any more is found if it has a note; else the error is [ErrUnknown].
func (g *Groups) Show(ctx context.Context, fingerprint string) (Group, error) {
	list, err := g.look(ctx, fingerprint)
	switch {
	case err != nil:
	case len(list) == 1:
		return list[0], nil
	default:
		err = ErrUnknown
	}
	return Group{}, g.wrap("show the failures "+fingerprint, err)
}

// Note sets the note of a group, in place of an earlier one; "" removes it. A note outlives the failures, and can be changed when none is left. The
// error is [ErrUnknown] if the group has neither.
func (g *Groups) Note(ctx context.Context, fingerprint, text string, by operator.By) error {
	by.Reason = text // the audit keeps earlier notes
	return g.decide(ctx, operator.Note, fingerprint, by, note, func(*Group) any { return pgsql.CleanText(text) })
}

// Archive takes a group out of the lists of stuck messages, until something fails with its fingerprint that is later than what failed up to now. by must
// give a reason. Its messages are tried as before. The error is [ErrUnknown] if nothing fails with the fingerprint.
//
// The call reads the latest failure first, and stores its time with the decision. A failure between the two steps has a later time, so the group is back
// at once. A dead letter has the time at which its transaction began: if that is before the latest failure that was read, and its commit comes after the
// read, the letter is archived with the others.
func (g *Groups) Archive(ctx context.Context, fingerprint string, by operator.By) error {
	return g.decide(ctx, operator.Archive, fingerprint, by, archive, func(of *Group) any { return of.Last() })
}

// Unarchive puts an archived group back into the lists. The error is [ErrUnknown] if it is not archived.
func (g *Groups) Unarchive(ctx context.Context, fingerprint string, by operator.By) error {
	return g.decide(ctx, operator.Unarchive, fingerprint, by, unarchive, nil)
}

// decide runs a statement about a group and its entry in the audit. more returns the last argument.
func (g *Groups) decide(
	ctx context.Context, action operator.Action, fingerprint string, by operator.By, statement string, more func(*Group) any,
) error {
	what := string(action) + " the failures " + fingerprint
	if err := by.Validate(action); err != nil {
		return g.wrap(what, err)
	}
	of, err := g.Show(ctx, fingerprint)
	if err != nil {
		return err
	}
	if action == operator.Archive && of.Last().IsZero() {
		return g.wrap(what, ErrUnknown)
	}
	args := []any{fingerprint, string(g.part), by.Actor, pgsql.CleanText(by.Reason), of.Consumer, of.Topic, of.Type, of.Cause}
	if more != nil {
		args = append(args, more(&of))
	}
	n, err := g.run.Exec(ctx, g.db(ctx), fmt.Sprintf(statement, action), args...)
	if err == nil && n == 0 {
		err = ErrUnknown
	}
	return g.wrap(what, err)
}

// look reads one group, or all if the fingerprint is "".
func (g *Groups) look(ctx context.Context, fingerprint string) ([]Group, error) {
	found := map[string]*Group{}
	for _, t := range []struct {
		table *Table
		of    func(*Group) *Tally
	}{{&g.failing, func(of *Group) *Tally { return &of.Failing }}, {&g.dead, func(of *Group) *Tally { return &of.Dead }}} {
		list, err := g.read(ctx, t.table, fingerprint)
		if err != nil {
			return nil, err
		}
		for n := range list {
			y := &list[n]
			if found[y.fingerprint] == nil {
				found[y.fingerprint] = groupOf(y)
			}
			*t.of(found[y.fingerprint]) = y.Tally
		}
	}
	if fingerprint != "" && found[fingerprint] == nil {
		found[fingerprint] = &Group{Fingerprint: fingerprint}
	}
	if err := g.readSaid(ctx, found); err != nil {
		return nil, err
	}
	var list []Group
	for _, of := range found {
		// A fingerprint without failures is a group only if somebody wrote a note.
		if !of.Last().IsZero() || !of.NotedAt.IsZero() {
			list = append(list, *of)
		}
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(b.Last().Compare(a.Last()), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return list, nil
}

// readSaid adds what operators said about the groups.
func (g *Groups) readSaid(ctx context.Context, found map[string]*Group) error {
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	return pgsql.Each(g.run.Query(ctx, g.db(ctx), said, names), func(scan pgsql.Scan) error {
		var (
			of                    Group
			noted, archived, upto sql.NullTime
		)
		err := scan(&of.Fingerprint, &of.Consumer, &of.Topic, &of.Type, &of.Cause, &of.Note, &of.NotedBy, &noted,
			&of.ArchivedBy, &archived, &of.ArchivedWhy, &upto)
		if to := found[of.Fingerprint]; to != nil {
			if to.Last().IsZero() {
				to.Consumer, to.Topic, to.Type, to.Cause = of.Consumer, of.Topic, of.Type, of.Cause
			}
			to.Note, to.NotedBy, to.NotedAt = of.Note, of.NotedBy, noted.Time
			to.ArchivedBy, to.ArchivedAt, to.ArchivedWhy, to.upto = of.ArchivedBy, archived.Time, of.ArchivedWhy, upto.Time
		}
		return err
	})
}

func (g *Groups) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", g.part, what, pgerr.Explain(err))
}
