package outbox

import (
	"context"
	"errors"
)

// Clean ensures the partitions ahead, drops the expired ones, deletes the dead letters that are older than
// [Config.DeadRetention] and the audit that is older than [Config.AuditRetention], and forgets the dedup keys that are older
// than [Config.DedupRetention], once. It is safe in any number of processes. What [Config.BeforeDrop] refuses is logged and
// counted, is no error here, and is tried again by the next Clean.
func (s *Store) Clean(ctx context.Context) error {
	err := s.EnsurePartitions(ctx)
	_, drop := s.dropExpired(ctx)
	return errors.Join(err, drop, s.dead.Expire(ctx, s.cfg.DeadRetention), s.audit.Expire(ctx, s.db), s.expireKeys(ctx))
}
