package consumers

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/readmodel"
)

// ModelItem is a read model in the JSON output of rebuild status. Scripts use the names, so they never change.
type ModelItem struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`
	Generation int64      `json:"generation"`
	Consumer   string     `json:"consumer"`
	Events     int64      `json:"events"`
	Checkpoint string     `json:"checkpoint,omitempty"`
	Waiting    int64      `json:"waiting"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
}

// The states of a read model.
const (
	ModelLive        = "live"
	ModelRebuilding  = "rebuilding"  // a process is rebuilding it
	ModelInterrupted = "interrupted" // no process is rebuilding it; Model.Resume continues
)

// NewRebuild returns the commands "oncebox rebuild".
func NewRebuild(s *cli.Session) *cobra.Command {
	show := &cobra.Command{
		Use: "status [READ_MODEL...]", Short: "Show for each read model whether it is being rebuilt, and how far",
		Long: `Show for each read model whether it is being rebuilt, how far the rebuild is, and how many live messages wait for it (counted up
to 10,000). A read model is

  live          it is up to date, and messages are handled as they come
  rebuilding    a process reads the history, and live messages wait for it
  interrupted   no process reads the history any more, and live messages wait: let the service call Model.Resume

Only the service can start a rebuild, because it has the handler: see docs/read-models.md.

Exit code 0: no rebuild is interrupted. 3: at least one is. 4: a name was given that no read model has.`,
		Example: `  oncebox rebuild status
  oncebox rebuild status balances --json`,
	}
	show.RunE = func(cmd *cobra.Command, names []string) error {
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		all, err := readmodel.List(cmd.Context(), s.Inbox())
		if err != nil {
			return err
		}
		list := make([]ModelItem, 0, len(all))
		byName := map[string]ModelItem{}
		for n := range all {
			item := ModelOf(&all[n])
			byName[item.Name] = item
			list = append(list, item)
		}
		// With names the list has their order, and a name that does not exist is an error: a script must
		// not read it as "not interrupted".
		if len(names) > 0 {
			list = list[:0]
		}
		for _, name := range names {
			item, found := byName[name]
			if !found {
				return cli.Exit(cli.ExitNothing, fmt.Errorf("there is no read model %q", name))
			}
			list = append(list, item)
		}
		return printModels(s, list)
	}
	return cli.Group("rebuild", "Rebuilds of read models", show)
}

// ModelOf makes the output for a read model. Running wins: a resumed rebuild is not interrupted any more.
func ModelOf(p *readmodel.Status) ModelItem {
	state := ModelLive
	switch {
	case p.Running:
		state = ModelRebuilding
	case p.Rebuilding:
		state = ModelInterrupted
	}
	return ModelItem{p.Name, state, p.Generation, p.Consumer, p.Events, p.Checkpoint, p.Waiting, cli.TimeOf(p.StartedAt), cli.TimeOf(p.UpdatedAt)}
}

func printModels(s *cli.Session, list []ModelItem) error {
	header := []string{"PROJECTION", "STATE", "REBUILDS", "EVENTS", "WAITING", "STARTED", "UPDATED", "CHECKPOINT"}
	err := cli.List(s, list, "There is no read model.", header, func(p *ModelItem) []string {
		return []string{
			p.Name, p.State, strconv.FormatInt(p.Generation, 10), strconv.FormatInt(p.Events, 10), cli.UpTo(p.Waiting, 10_000),
			cli.At(p.StartedAt), cli.At(p.UpdatedAt), cli.Short(p.Checkpoint, 40),
		}
	})
	// The exit code follows from the list that was printed, so --json has it too.
	interrupted := 0
	for n := range list {
		if list[n].State == ModelInterrupted {
			interrupted++
		}
	}
	if err == nil && interrupted > 0 {
		err = cli.Exit(cli.ExitFindings, fmt.Errorf("%s: let the service call Model.Resume",
			cli.Several(interrupted, "rebuild is interrupted", "rebuilds are interrupted")))
	}
	return err
}
