package lanedb

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
)

// Rehearse asks the server whether it would run all statements that serve lanes: they claim and keep lanes, read
// rows, take them, and record what became of them. It returns an error if this build does not fit the tables, or if
// this role lacks a right. A projector that counts as alive has a share of the lanes, so it must be able to serve
// them. Nothing is written.
func (s Leases) Rehearse(ctx context.Context, owner string, group int16, ttl time.Duration) error {
	if _, err := s.Claim(ctx, owner, group, 0, ttl); err != nil {
		return err
	}
	if _, err := s.Renew(ctx, nil, ttl); err != nil {
		return err
	}
	// Without arguments, all of them are one round trip.
	if _, err := s.box.AdHoc().Exec(ctx, s.box.DB, explained(Statements(s.box.Keeps()))); err != nil {
		return outboxdb.Wrap("rehearse the statements of a relay", err)
	}
	var may bool
	if err := s.box.AdHoc().QueryRow(ctx, s.box.DB, mayDraw, nil, &may); err != nil {
		return outboxdb.Wrap("rehearse the statements of a relay", err)
	}
	if !may {
		return &misfit{errNumbers}
	}
	return nil
}

// mayDraw asks for rights that EXPLAIN does not check: it does not evaluate the default of a column. A look at a
// sequence without the right is an error in some versions of PostgreSQL and NULL in others. One of the rights in a
// list is enough.
const mayDraw = `SELECT has_sequence_privilege('{schema}.outbox_claim_n', 'USAGE, UPDATE')
	AND has_sequence_privilege('{schema}.outbox_progress_n', 'USAGE, UPDATE') AND has_sequence_privilege('{schema}.outbox_progress_n', 'USAGE, SELECT')
	AND has_sequence_privilege('{schema}.outbox_seq', 'USAGE, SELECT')`

var errNumbers = errors.New("outbox: rehearse the statements of a relay: this role may not use the sequences outbox_claim_n, outbox_progress_n and " +
	"outbox_seq: have the owner of the tables run GRANT USAGE, SELECT ON SEQUENCE for them; the command oncebox grants prints all that a role needs")

// misfit is the lack of a right that this package has asked for, without an error of the server.
type misfit struct{ error }

func (e *misfit) Unwrap() error { return e.error }

// IsMisfit reports whether an error of [Leases.Rehearse] says that this process cannot serve lanes until somebody mends its build, its role or the tables.
// Else the database is away, or in trouble that others share.
func IsMisfit(err error) bool {
	_, asked := errors.AsType[*misfit](err)
	return asked || pgerr.IsMisfit(err)
}

// Statements returns the statements of a relay that has lanes, by name. Statements that it does not need to go on are
// left out: partitions, cleaning, statistics, and the hooks of dead letters. keeps says whether published rows stay
// where they are.
func Statements(keeps bool) map[string]string {
	settle := settleRows
	if !keeps {
		settle = settleAndForget
	}
	return map[string]string{
		// Who owns what.
		"renew": renew, "release": release, "pauses": pauses, "otherTenants": otherTenants, "askDeployment": outboxdb.AskDeployment,
		// Where lanes are.
		"positions": positions, "hidden": hidden, "doubtNumbers": doubtNumbers, "trustNumbers": trustNumbers, "observe": observe, "begin": begin,
		// What is read and taken.
		"fetchFew": fetchFew, "fetchSome": fetchSome, "fetchMany": fetchMany, "fetchAndTake": fetchAndTake, "takeRows": takeRows, "pickRows": pickRows,
		"lookRows": lookRows, "lookTenants": lookTenants, "lookFar": lookFar, "lookLate": lookLate,
		// What was published.
		"recordRows": recordRows, "settleRows": settle,
		// What waits.
		"holdRows": holdRows, "delayRows": delayRows, "loadBlocks": loadBlocks, "queueRows": queueRows, "dueRows": dueRows, "lookDue": lookDue,
		"pickDue": pickDue, "nextDue": nextDue, "unlockedRows": unlockedRows, "settleHeld": settleHeld, "retryHeld": retryHeld,
		"giveUpHeld": giveUpHeld, "releaseKeys": releaseKeys,
		// What may have killed a relay.
		"countCrash": countCrash, "countHeldCrash": countHeldCrash, "clearCrash": clearCrash, "clearHeldCrash": clearHeldCrash,
	}
}

var parameter = regexp.MustCompile(`\$\d+`)

// explained returns a text that makes the server plan statements and check the rights that they need, without running
// them.
func explained(statements map[string]string) string {
	var text strings.Builder
	for _, statement := range statements {
		text.WriteString("EXPLAIN " + parameter.ReplaceAllString(statement, "NULL") + ";\n")
	}
	return text.String()
}
