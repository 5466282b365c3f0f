package status

import (
	"strconv"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// adopted returns a row for each old table that is taken over (oncebox adopt).
func (i *Item) adopted() [][]string {
	if len(i.Adopted) == 0 {
		return nil
	}
	rows := [][]string{{"OLD TABLE", "WAITING", "OLDEST", "STAY", "TRIGGER", "LOOKED AT", "WRITTEN", "LAST ERROR"}}
	for n := range i.Adopted {
		a := &i.Adopted[n]
		waiting, failed := cli.UpTo(a.Waiting, adopt.Counted), a.Error
		if a.Fault != "" {
			waiting, failed = "-", a.Fault
		}
		rows = append(rows, []string{
			cli.Short(a.Table, 40), waiting, i.ago(a.Oldest), strconv.FormatInt(a.Stay, 10), string(a.Trigger), i.ago(a.LookedAt), i.ago(a.WrittenAt),
			cli.Short(failed, 60),
		})
	}
	return rows
}

// ago returns how long ago a time was, "-" for the zero time.
func (i *Item) ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return cli.Age(max(i.At.Sub(at), 0).Seconds())
}
