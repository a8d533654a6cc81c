"""Operations that are kept on record: asked for by one process, carried out by another."""
