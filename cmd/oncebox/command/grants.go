package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/migrations"
)

// newGrants makes a command that prints statements and runs none: only the owner of the tables may grant rights on
// them, and the service should not connect as the owner.
func newGrants(s *cli.Session) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "grants DUTY --to ROLE", Short: "Print the GRANT statements that a role of the database needs",
		Long: `Print the GRANT statements that a role of the database needs for a duty:

  service  publishes events, handles messages, stores idempotency keys, deletes what has outlived its retention, and runs this command
  writer   adds events, and cannot change or delete them afterwards
  caller   calls the SQL function oncebox_add: a program in another language, or a role whose statements fire a trigger
  reader   reads all tables and changes nothing: a dashboard

The owner of the tables runs them, for example with psql:

  oncebox grants service --to app | psql "$OWNER_URL"`,
		Example: `  oncebox grants service --to app
  oncebox grants reader --to dashboard | psql "$OWNER_URL"`,
		Args:      cli.Takes(1, "grants takes one duty"),
		ValidArgs: []string{string(migrations.Service), string(migrations.Writer), string(migrations.Caller), string(migrations.Reader)},
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return cli.Usage(cmd, errors.New("--to is missing: name the role that gets the rights"))
			}
			if err := s.Open(cmd.Context()); err != nil {
				return err
			}
			statements, err := migrations.Grants(cmd.Context(), s.DB, s.Migrations(), migrations.Duty(args[0]), to)
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			if s.JSON {
				return s.Document(map[string][]string{"statements": statements})
			}
			_, err = fmt.Fprintln(s.Out, strings.Join(statements, ";\n")+";")
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the role that gets the rights")
	return cmd
}
