package upkeep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// configActor is the actor in the audit for a process that has entered its own Config.Retention.
const configActor = "Config.Retention"

// policy is the rule for published rows. It belongs to the database and not to a process: otherwise a process with a
// short retention would drop rows that another process keeps longer, or has not archived yet.
type policy struct {
	retention time.Duration // like Config.Retention, but never 0
	isSet     bool          // a process has set it; otherwise it is the default
	archived  bool          // only processes with outbox.Config.BeforeDrop may drop days
}

const (
	askPolicy = `SELECT kept_set, extract(epoch FROM kept)::float8, archived FROM {schema}.oncebox_settings`

	// enterPolicy adds the settings of a process to those of the database: $1 whether it has a retention, $2 the
	// retention, $3 whether it archives. The longer retention counts, because rows that are dropped too early are lost.
	enterPolicy = changePolicy + `
	SET kept_set = r.kept_set OR $1::boolean, archived = r.archived OR $3::boolean, kept = CASE WHEN ` + isLonger + ` THEN $2::interval ELSE r.kept END
	WHERE ` + isLonger + ` OR $3::boolean AND NOT r.archived` + notePolicy

	isLonger = `($1::boolean AND (NOT r.kept_set OR r.kept IS NOT NULL AND ($2::interval IS NULL OR $2::interval > r.kept)))`

	// setPolicy replaces the settings of the database.
	setPolicy = changePolicy + `
	SET kept_set = $1::boolean, kept = $2::interval, archived = $3::boolean` + notePolicy

	changePolicy = `
WITH before AS (SELECT ` + policyText + ` AS text FROM {schema}.oncebox_settings),
changed AS (
	UPDATE {schema}.oncebox_settings r`

	// notePolicy adds an entry to the audit: $4 is the actor, $5 the reason.
	notePolicy = ` RETURNING r.*)
INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
SELECT 'outbox', $4, '` + string(operator.Retention) + `', '',
	'from ' || (SELECT text FROM before) || ' to ' || ` + policyText + ` || ': ' || $5 FROM changed`

	policyText = `CASE WHEN kept_set THEN coalesce(kept::text, 'for ever') ELSE 'not set' END || ', archived: ' || archived`
)

// SetRetention makes outbox.Config.Retention of this store, and whether it has an outbox.Config.BeforeDrop, the rule for the database. It is
// needed to make the retention shorter, or to end the archiving: settings that keep more are entered by each process itself, at its
// start and with each Config.CleanInterval. So change the settings of all processes first, or the longest one is entered again.
// Other processes follow the new rule after their next Config.CleanInterval at the latest. by must give a reason.
func (u *Upkeep) SetRetention(ctx context.Context, by operator.By) error {
	if err := by.Validate(operator.Retention); err != nil {
		return fmt.Errorf("outbox: set the retention: %w", err)
	}
	_, err := u.box.AdHoc().Exec(ctx, u.box.DB, setPolicy, true, storedRetention(u.cfg.Retention), u.cfg.BeforeDrop != nil,
		by.Actor, pgsql.CleanText(by.Reason))
	if err == nil {
		_, err = u.policy(ctx)
	}
	return outboxdb.Wrap("set the retention", err)
}

// policy reads the policy of the database, after it has entered settings of this process that keep more. It logs a
// warning, once for each policy, about settings of this process that have no effect.
// The statement changes nothing if another process was faster, because it compares again.
func (u *Upkeep) policy(ctx context.Context) (policy, error) {
	p, err := u.askPolicy(ctx)
	if err == nil && u.keepsMore(p) {
		// Asked again in a new statement, because the snapshot of the insert does not show the row that it
		// has waited for.
		if _, err = u.box.Run.Exec(ctx, u.box.DB, enterPolicy, u.cfg.OwnRetention, storedRetention(u.cfg.Retention), u.cfg.BeforeDrop != nil,
			configActor, "a process is configured so"); err == nil {
			p, err = u.askPolicy(ctx)
		}
	}
	if err != nil {
		return p, outboxdb.Wrap("read the retention", err)
	}
	// The relay reads this flag when it settles: with NoRetention it deletes published events.
	u.box.Forgets.Store(p.retention == NoRetention)
	if last := u.last.Swap(&p); last == nil || *last != p {
		u.reportPolicy(ctx, p)
	}
	return p, nil
}

// keepsMore reports whether this process has a setting that keeps published rows longer than the policy does, or
// archives them.
func (u *Upkeep) keepsMore(p policy) bool {
	return u.cfg.OwnRetention && (!p.isSet || storedLength(u.cfg.Retention) > storedLength(p.retention)) || u.cfg.BeforeDrop != nil && !p.archived
}

// askPolicy reads the policy. A database without a row of settings has the default.
func (u *Upkeep) askPolicy(ctx context.Context) (p policy, err error) {
	var seconds sql.NullFloat64
	err = u.box.Run.QueryRow(ctx, u.box.DB, askPolicy, nil, &p.isSet, &seconds, &p.archived)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, err
	}
	switch {
	case !p.isSet:
		p.retention = DefaultRetention
	case !seconds.Valid:
		p.retention = KeepForever
	case seconds.Float64 == 0:
		p.retention = NoRetention
	default:
		p.retention = time.Duration(math.Round(seconds.Float64*1e6)) * time.Microsecond
	}
	return p, nil
}

// storedLength rounds a retention to microseconds, as PostgreSQL stores it, so that values can be compared.
func storedLength(d time.Duration) time.Duration {
	switch d {
	case KeepForever:
		return math.MaxInt64
	case NoRetention:
		return 0
	default:
		return d.Round(time.Microsecond)
	}
}

// storedRetention returns a retention as the table stores it, NULL for ever.
func storedRetention(d time.Duration) *time.Duration {
	if d == KeepForever {
		return nil
	}
	d = storedLength(d)
	return &d
}

// reportPolicy is called once per change of the policy, so the warning does not come with every interval.
func (u *Upkeep) reportPolicy(ctx context.Context, p policy) {
	if u.cfg.OwnRetention && storedLength(u.cfg.Retention) != storedLength(p.retention) {
		u.box.Log.WarnContext(ctx, "oncebox: published events are kept for longer than Config.Retention of this process, because another process has set "+
			"a longer retention: change Config.Retention here, or call "+
			"Store.Upkeep().SetRetention", "database", p.String(), "config", policy{retention: u.cfg.Retention}.String())
	}
	if p.archived && u.cfg.BeforeDrop == nil {
		u.box.Log.InfoContext(ctx, "oncebox: this process drops no partitions of published events, because another process archives them first and this "+
			"process has no Config.BeforeDrop")
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

// KeptFor returns how long published events are kept in this database, whatever this store's settings are.
// [NoRetention] and [KeepForever] mean the same as in outbox.Config.Retention.
func (u *Upkeep) KeptFor(ctx context.Context) (time.Duration, error) {
	p, err := u.askPolicy(ctx)
	return p.retention, outboxdb.Wrap("read the retention", err)
}
