package events

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// LaneItem is a lane in the JSON output of lanes. Scripts use the names, so they never change.
type LaneItem struct {
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

// NewLanes returns the command "oncebox lanes".
func NewLanes(s *cli.Session) *cobra.Command {
	var waiting, free bool
	cmd := &cobra.Command{
		Use: "lanes", Short: "List the lanes of the outbox: which relay publishes each, and how many events wait", Args: cli.NoArgs,
		Long: fmt.Sprintf(`List the lanes of the outbox: which process has each and until when, how many events wait in it, how many of them may be on
their way to the broker, and since when the oldest waits. Each number is exact up to %d. A lane without a lease for
longer than half a minute has no process that publishes it.`,
			outboxstate.LaneCounted),
		Example: `  oncebox lanes
  oncebox lanes --waiting
  oncebox lanes --free --json`,
	}
	cmd.Flags().BoolVar(&waiting, "waiting", false, "only lanes in which events wait")
	cmd.Flags().BoolVar(&free, "free", false, "only lanes that no relay publishes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		lanes, err := s.Outbox().State().Lanes(cmd.Context())
		if err != nil {
			return err
		}
		// Not nil, so that JSON has [] if no lane is selected.
		list := []LaneItem{}
		for n := range lanes {
			l := &lanes[n]
			if waiting && l.Backlog() == 0 || free && l.Leased {
				continue
			}
			list = append(list, LaneItem{
				l.Lane, l.Group, l.Owner, l.Epoch, l.Leased, cli.TimeOf(l.LeaseUntil), l.New, l.Claimed, l.Held, cli.TimeOf(l.Since), l.Age.Seconds(),
			})
		}
		return printLanes(s, list)
	}
	return cmd
}

func printLanes(s *cli.Session, list []LaneItem) error {
	header := []string{"LANE", "GROUP", "NEW", "CLAIMED", "HELD", "AGE", "OWNER", "LEASE"}
	return cli.List(s, list, "No lane matches.", header, func(l *LaneItem) []string {
		// A lease runs, or it has ended without a successor, which is normal for some seconds, or no relay has taken
		// the lane since it was given back.
		lease := "over since " + cli.At(l.LeaseUntil)
		switch {
		case l.Leased:
			lease = "until " + cli.At(l.LeaseUntil)
		case l.LeaseUntil == nil:
			lease = "free"
		}
		return []string{
			strconv.Itoa(int(l.Lane)), strconv.Itoa(int(l.Group)), cli.UpTo(l.New, outboxstate.LaneCounted), cli.UpTo(l.Claimed, outboxstate.LaneCounted),
			cli.UpTo(l.Held, outboxstate.LaneCounted), cli.Age(l.AgeSeconds), cli.Short(l.Owner, 40), lease,
		}
	})
}
