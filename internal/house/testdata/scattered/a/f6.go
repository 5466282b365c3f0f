package a

func (s *Store) M6() {}
