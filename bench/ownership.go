package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// createAudit records every change of a lane's owner or epoch, in the same transaction. A renewal is not such a change,
// but the recorded end of the lease is the last renewed one.
const createAudit = `
CREATE TABLE lane_audit (
	n bigserial PRIMARY KEY, lane smallint NOT NULL, at timestamptz NOT NULL,
	was text, was_epoch bigint NOT NULL, was_until timestamptz NOT NULL, owner text, epoch bigint NOT NULL);
CREATE FUNCTION audit_lane() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO lane_audit (lane, at, was, was_epoch, was_until, owner, epoch)
	VALUES (NEW.lane, clock_timestamp(), OLD.owner, OLD.epoch, OLD.lease_until, NEW.owner, NEW.epoch);
	RETURN NULL;
END $$;
CREATE TRIGGER audit_lane AFTER UPDATE ON outbox_lane FOR EACH ROW
	WHEN (OLD.owner IS DISTINCT FROM NEW.owner OR OLD.epoch IS DISTINCT FROM NEW.epoch) EXECUTE FUNCTION audit_lane()`

// handover is a change of a lane's owner. An empty name stands for no owner.
type handover struct {
	lane     int
	at       time.Time
	was      string
	wasEpoch int64
	expired  bool // the lease of the former owner, when the lane was taken
	owner    string
	epoch    int64
}

// handovers reads the audit, in the order in which each lane's were made.
func handovers(ctx context.Context, db *bun.DB) ([]handover, error) {
	rows, err := db.DB.QueryContext(ctx, `
SELECT lane, at, coalesce(was, ''), was_epoch, was_until < at, coalesce(owner, ''), epoch FROM lane_audit ORDER BY n`)
	if err != nil {
		return nil, fmt.Errorf("read the audit of the lanes: %w", err)
	}
	defer rows.Close()
	var out []handover
	for rows.Next() {
		var h handover
		if err := rows.Scan(&h.lane, &h.at, &h.was, &h.wasEpoch, &h.expired, &h.owner, &h.epoch); err != nil {
			return nil, fmt.Errorf("read the audit of the lanes: %w", err)
		}
		out = append(out, h)
	}
	return out, rows.Err()
}

// soleOwners finds handovers by which a lane had two owners at a time: it was taken while somebody's lease ran, or not
// from the owner that it was given to, or the epoch did not grow.
func soleOwners(all []handover) error {
	last := map[int]handover{}
	for _, h := range all {
		before, known := last[h.lane]
		last[h.lane] = h
		wrong := ""
		switch {
		case known && (h.was != before.owner || h.wasEpoch != before.epoch):
			wrong = fmt.Sprintf("it was %q's in epoch %d", before.owner, before.epoch)
		case h.owner == "" && h.epoch != h.wasEpoch:
			wrong = "the epoch changed with the release"
		case h.owner != "" && h.epoch <= h.wasEpoch:
			wrong = "the epoch did not grow"
		case h.owner != "" && h.was != "" && !h.expired:
			wrong = "the lease had not ended"
		}
		if wrong != "" {
			return fmt.Errorf("%w: lane %d went from %q in epoch %d to %q in epoch %d: %s",
				errWrong, h.lane, h.was, h.wasEpoch, h.owner, h.epoch, wrong)
		}
	}
	return nil
}

// solePublishers finds a lane from which two projectors have published at the same time. It relies on the clock of the
// machine, which both use, and not on leases.
func solePublishers(all []publication) error {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b publication) int { return cmp.Compare(a.Begin.UnixNano(), b.Begin.UnixNano()) })
	last := map[int]publication{} // the latest publication of each lane
	for _, p := range sorted {
		for lane := range 64 {
			if p.Lanes&(1<<lane) == 0 {
				continue
			}
			before, known := last[lane]
			if known && before.By != p.By && p.Begin.Before(before.End) {
				return fmt.Errorf("%w: %s and %s published from lane %d at a time", errWrong, before.By, p.By, lane)
			}
			if !known || p.End.After(before.End) {
				last[lane] = p
			}
		}
	}
	return nil
}
