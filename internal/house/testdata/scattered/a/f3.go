package a

func (s *Store) M3() {}
