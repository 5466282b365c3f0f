package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/outbox"
)

// laneItem is what lanes prints as JSON. The names stay.
type laneItem struct {
	Lane       int16      `json:"lane"`
	Group      int16      `json:"group"`
	Owner      string     `json:"owner,omitempty"`
	Epoch      int64      `json:"epoch"`
	Leased     bool       `json:"leased"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
	New        int64      `json:"new"`
	Claimed    int64      `json:"claimed"`
	Held       int64      `json:"held"`
	Since      *time.Time `json:"since,omitempty"`
	AgeSeconds float64    `json:"age_seconds"`
}

func newLanes(s *session) *cobra.Command {
	var waiting, free bool
	cmd := &cobra.Command{
		Use: "lanes", Short: "List the lanes of the outbox: which process has each, and what waits in it", Args: noArgs,
		Long: fmt.Sprintf(`List the lanes of the outbox: which process has each and until when, how many events wait in it, how many of them may be on
their way to the broker, and since when the oldest waits. Each number is exact up to %d. A lane without a lease for
longer than half a minute has no process that publishes it.`,
			outbox.LaneCounted),
		Example: `  oncebox lanes
  oncebox lanes --waiting
  oncebox lanes --free --json`,
	}
	cmd.Flags().BoolVar(&waiting, "waiting", false, "only lanes in which events wait")
	cmd.Flags().BoolVar(&free, "free", false, "only lanes that no process has")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		lanes, err := s.outbox().Lanes(cmd.Context())
		if err != nil {
			return err
		}
		list := []laneItem{}
		for n := range lanes {
			l := &lanes[n]
			if waiting && l.Backlog() == 0 || free && l.Leased {
				continue
			}
			list = append(list, laneItem{
				l.Lane, l.Group, l.Owner, l.Epoch, l.Leased, timeOf(l.LeaseUntil), l.New, l.Claimed, l.Held, timeOf(l.Since), l.Age.Seconds(),
			})
		}
		return s.printLanes(list)
	}
	return cmd
}

func (s *session) printLanes(list []laneItem) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.errs, "There is no such lane.")
		return nil
	}
	rows := make([][]string, len(list))
	for n := range list {
		l := &list[n]
		lease := "over since " + at(l.LeaseUntil)
		switch {
		case l.Leased:
			lease = "until " + at(l.LeaseUntil)
		case l.LeaseUntil == nil:
			lease = "free"
		}
		rows[n] = []string{
			strconv.Itoa(int(l.Lane)), strconv.Itoa(int(l.Group)), upTo(l.New, outbox.LaneCounted), upTo(l.Claimed, outbox.LaneCounted),
			upTo(l.Held, outbox.LaneCounted), age(l.AgeSeconds), short(l.Owner, 40), lease,
		}
	}
	return s.table([]string{"LANE", "GROUP", "NEW", "CLAIMED", "HELD", "AGE", "OWNER", "LEASE"}, rows)
}

// upTo is a number that was counted up to a bound.
func upTo(n, bound int64) string {
	if n >= bound {
		return strconv.FormatInt(bound, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}

// age is a number of seconds as people read it.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + " days"
	}
}
